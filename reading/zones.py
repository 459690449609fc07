"""Time zones by IANA name, by city, by country, by abbreviation, in English and Chinese."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache

_AREAS = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
_ALIASES = {
    "Asia/Shanghai": "beijing shenzhen guangzhou hangzhou chengdu nanjing wuhan china "
    "北京 上海 深圳 广州 杭州 成都 南京 武汉 中国",
    "Asia/Hong_Kong": "hongkong 香港",
    "Asia/Taipei": "taiwan 台北 台湾",
    "Asia/Tokyo": "osaka kyoto japan jst 东京 大阪 日本",
    "Asia/Seoul": "korea 首尔 韩国",
    "Asia/Singapore": "新加坡",
    "Asia/Kolkata": "india mumbai delhi new_delhi bangalore bengaluru chennai hyderabad pune 印度 孟买 新德里 班加罗尔",
    "Asia/Dubai": "uae abu_dhabi 迪拜 阿联酋",
    "Asia/Bangkok": "thailand 曼谷 泰国",
    "Asia/Jakarta": "indonesia 雅加达",
    "Asia/Manila": "philippines 马尼拉",
    "Asia/Kuala_Lumpur": "malaysia 吉隆坡",
    "Asia/Ho_Chi_Minh": "vietnam hanoi saigon 越南 河内 胡志明市",
    "Asia/Jerusalem": "israel tel_aviv 以色列 特拉维夫",
    "Asia/Riyadh": "saudi_arabia 利雅得",
    "Asia/Karachi": "pakistan",
    "Asia/Dhaka": "bangladesh",
    "Europe/Berlin": "germany munich hamburg frankfurt cologne stuttgart cest 柏林 慕尼黑 法兰克福 汉堡 德国",
    "Europe/London": "uk england britain united_kingdom great_britain scotland manchester edinburgh bst 伦敦 英国",
    "Europe/Paris": "france lyon marseille 巴黎 法国",
    "Europe/Madrid": "spain barcelona 马德里 西班牙 巴塞罗那",
    "Europe/Rome": "italy milan 罗马 米兰 意大利",
    "Europe/Amsterdam": "netherlands holland rotterdam 阿姆斯特丹 荷兰",
    "Europe/Zurich": "switzerland geneva bern 苏黎世 日内瓦 瑞士",
    "Europe/Vienna": "austria 维也纳 奥地利",
    "Europe/Brussels": "belgium 布鲁塞尔 比利时",
    "Europe/Stockholm": "sweden 斯德哥尔摩 瑞典",
    "Europe/Oslo": "norway 奥斯陆 挪威",
    "Europe/Copenhagen": "denmark 哥本哈根 丹麦",
    "Europe/Helsinki": "finland 赫尔辛基 芬兰",
    "Europe/Warsaw": "poland krakow 华沙 波兰",
    "Europe/Prague": "czechia czech_republic 布拉格 捷克",
    "Europe/Budapest": "hungary 布达佩斯",
    "Europe/Lisbon": "portugal porto 里斯本 葡萄牙",
    "Europe/Dublin": "ireland 都柏林 爱尔兰",
    "Europe/Athens": "greece 雅典 希腊",
    "Europe/Moscow": "moscow msk st_petersburg saint_petersburg 莫斯科",
    "Europe/Kyiv": "ukraine kiev 基辅 乌克兰",
    "Europe/Istanbul": "turkey 伊斯坦布尔 土耳其",
    "Africa/Cairo": "egypt 开罗 埃及",
    "Africa/Johannesburg": "south_africa cape_town 约翰内斯堡 南非",
    "Africa/Lagos": "nigeria",
    "Africa/Nairobi": "kenya 内罗毕",
    "America/New_York": "nyc boston washington washington_dc miami atlanta philadelphia est edt 纽约 波士顿 华盛顿",
    "America/Chicago": "dallas houston austin cst cdt 芝加哥 休斯顿 达拉斯",
    "America/Denver": "salt_lake_city mst mdt 丹佛",
    "America/Los_Angeles": "san_francisco sf la seattle california silicon_valley san_diego portland las_vegas pst pdt "
    "洛杉矶 旧金山 西雅图 加州 硅谷",
    "America/Toronto": "ottawa montreal 多伦多 蒙特利尔",
    "America/Vancouver": "温哥华",
    "America/Sao_Paulo": "brazil rio_de_janeiro rio 圣保罗 巴西",
    "America/Argentina/Buenos_Aires": "argentina 布宜诺斯艾利斯 阿根廷",
    "America/Mexico_City": "mexico 墨西哥城 墨西哥",
    "America/Bogota": "colombia",
    "America/Lima": "peru",
    "America/Santiago": "chile",
    "Australia/Sydney": "canberra aest 悉尼",
    "Australia/Melbourne": "墨尔本",
    "Australia/Perth": "珀斯",
    "Pacific/Auckland": "new_zealand wellington nz 奥克兰 新西兰",
    "Pacific/Honolulu": "hawaii 夏威夷 檀香山",
    "UTC": "utc gmt zulu 世界时 协调世界时 格林威治",
}
_NOT_CITIES = frozenset({"center", "easter", "troll", "casey", "vincent", "nome", "knox", "metro", "reunion"})
_WORDS = re.compile(r"[A-Za-z][A-Za-z.'-]*")
_IANA = re.compile(r"\b[A-Za-z]+(?:/[A-Za-z_+\-0-9]+){1,2}")
_OFFSET = re.compile(r"\b(?:utc|gmt)\s*([+-])\s*(\d{1,2})(?::?00)?\b", re.IGNORECASE | re.ASCII)
_PLACE = re.compile(r"\b(?:in|at|for)\s+((?:[A-Z][\w'-]+)(?:\s+[A-Z][\w'-]+){0,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A place in a text. ``value`` is an IANA name, or the place as written where ``known`` is false."""

    value: str
    start: int
    end: int
    known: bool = True


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Build (lower IANA name -> name, English place -> name, Chinese place -> name) once; it reads the zone list."""
    names = {name.lower(): name for name in zoneinfo.available_timezones() if "/" in name or name in ("UTC", "GMT")}
    places: dict[str, str] = {}
    for name in sorted(names.values()):
        city = name.rsplit("/", 1)[-1].lower()
        if name.startswith(_AREAS) and (name.count("/") == 1 or "Argentina" in name) and city not in _NOT_CITIES:
            places.setdefault(city.replace("_", " "), name)
    chinese: dict[str, str] = {}
    for name, words in _ALIASES.items():
        for word in words.split():
            (places if word.isascii() else chinese)[word.replace("_", " ")] = name
        if "/" in name:
            places[name.rsplit("/", 1)[-1].lower().replace("_", " ")] = name
    places["cet"] = "Europe/Paris"
    return names, places, chinese


def read_zones(text: str) -> list[Zone]:
    """Find the places whose time zone is known, in order; where there is none, a capitalised name after "in"."""
    names, places, chinese = _tables()
    found: list[Zone] = []
    for m in _OFFSET.finditer(text):
        # POSIX names count westwards, so the sign turns round
        value = f"Etc/GMT{'-' if m.group(1) == '+' else '+'}{int(m.group(2))}"
        found.append(Zone(value=value, start=m.start(), end=m.end(), known=value.lower() in names))
    for m in _IANA.finditer(text):
        name = names.get(m.group().lower())
        found.append(Zone(value=name or m.group(), start=m.start(), end=m.end(), known=name is not None))
    found += _cities(text, places, found)
    for place, name in chinese.items():
        at = text.find(place)
        if at >= 0:
            found.append(Zone(value=name, start=at, end=at + len(place)))
    found = _without_nested(found)
    if not found:
        found = [Zone(value=m.group(1), start=m.start(1), end=m.end(1), known=False) for m in _PLACE.finditer(text)]
    return sorted(found, key=lambda z: z.start)


def _cities(text: str, places: dict[str, str], taken: list[Zone]) -> list[Zone]:
    words = [w for w in _WORDS.finditer(text) if not any(t.start <= w.start() < t.end for t in taken)]
    found: list[Zone] = []
    n = 0
    while n < len(words):
        for length in (3, 2, 1):
            part = words[n : n + length]
            spelled = " ".join(w.group().lower().replace(".", "").removesuffix("'s") for w in part)
            shouted = len(spelled) > 2 or part[0].group().isupper()  # "LA" is a city, "la" is not
            if len(part) == length and spelled in places and shouted:
                found.append(Zone(value=places[spelled], start=part[0].start(), end=part[-1].end()))
                n += length - 1
                break
        n += 1
    return found


def _without_nested(zones: list[Zone]) -> list[Zone]:
    return [
        z
        for z in zones
        if not any(
            o is not z and o.start <= z.start and z.end <= o.end and o.end - o.start > z.end - z.start for o in zones
        )
    ]
