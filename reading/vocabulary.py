"""Words of operations work in English and Chinese, as data.

Tool names and descriptions are in English and people ask in both languages, so words of one meaning share one
concept. Nothing here names a tool: a tool is found because its own name, description and examples use the concepts.
"""

from __future__ import annotations

_CONCEPT_LINES = """
slow: slow sluggish laggard hog slowness slowdown drag lag laggy crawl expensive heavy heaviest worst long
    longest lengthy costly bottleneck 慢 卡 卡顿 耗时 瓶颈 拖慢 变慢 缓慢 最慢 较慢 久
query: query statement sql qry 查询 语句 sql语句
explain: explain analyze analyse analysis plan why explanation 解释 planner optimizer 分析 执行计划 查询计划
    计划 为什么 为何 说明
time: time clock date day weekday 时间 几点 时刻 日期 几号 星期几 时区 钟 timezone zone
now: now current currently present 现在 当前 目前 此刻 眼下
calculate: calculate compute calc calculation calculator evaluate eval math maths arithmetic expression 计算 算
    等于 计算器 表达式 算算 算术 数学
database: database db dbs instance 数据库 库 实例
run: run execute exec active live 运行 执行 正在 跑 活动 活跃
lock: lock block deadlock stuck 锁 阻塞 锁住 死锁 堵塞 堵住
wait: wait 等待
index: index 索引
table: table relation 表 数据表
health: health healthy checkup 健康 体检
check: check inspect 检查
status: status state 状态
bloat: bloat bloated 膨胀
vacuum: vacuum autovacuum
unused: unused unneeded useless 没用 无用 未使用 没用到
duplicate: duplicate redundant 重复 冗余
size: size big biggest large largest 大小 最大
search: search google lookup 搜索 搜 检索 搜一下
web: web internet online 上网 网上 网络 互联网 网页
report: report 报告 报表
connection: connection 连接
session: session backend 会话
replication: replication replica 复制 主从
cache: cache 缓存
weather: weather 天气
log: log 日志
cancel: cancel 取消
kill: kill terminate 终止 杀掉 杀死
restart: restart reboot 重启
deploy: deploy rollout 部署 发布
error: error failure 错误 报错 故障
memory: memory ram 内存
disk: disk storage 磁盘 硬盘
user: user 用户
file: file 文件
trend: trend 趋势
chart: chart plot graph 图表 画图
compare: compare 比较 对比
python: python py
code: code script 代码 脚本
target: target 目标
threshold: threshold 阈值
limit: limit
convert: convert conversion 转换 换算
translate: translate translation 翻译
list: 列表
word: 单词
count: count 统计 计数
order: order 订单
customer: customer client 客户
price: price cost 价格
incident: incident outage 事故
email: email mail 邮件
release: release
team: team 团队
task: task job 任务
service: service 服务
host: host machine server 主机 机器 服务器
ticket: ticket issue 工单
alert: alert alarm 告警 警报 报警
metric: metric 指标
version: version 版本
deployment: deployment
backup: backup 备份
summary: summary summarize summarise 总结 摘要
"""


def _read_concepts(lines: str) -> dict[str, str]:
    """Read ``concept: words`` entries; an indented line goes on with the entry before it."""
    entries = lines.replace("\n    ", " ").strip().splitlines()
    return {concept.strip(): words for concept, _, words in (entry.partition(":") for entry in entries)}


CONCEPTS = _read_concepts(_CONCEPT_LINES)
"""Concept -> the words that mean it (whole words in English, substrings in Chinese)."""

PHRASES: dict[tuple[str, str], str] = {
    ("look", "up"): "search",
    ("work", "out"): "calculate",
    ("how", "much"): "calculate",
    ("what", "hour"): "time",
    ("local", "time"): "time",
    ("how", "would"): "explain",
    ("how", "will"): "explain",
    ("add", "up"): "calculate",
}
"""Two English words that mean one concept together."""

COMPOUNDS: dict[str, tuple[str, ...]] = {
    "slowq": ("slow", "query"),
    "slowlog": ("slow", "query", "log"),
    "慢查": ("slow", "query"),
    "比较慢": ("slow",),
    "比较久": ("slow",),
    "慢日志": ("slow", "query"),
    "没有用": ("unused",),
    "没用": ("unused",),
    "不用的": ("unused",),
}
"""One word, several concepts."""

_ENGLISH_STOPS = """
a an the this that these those there here it its is are was were be been being am do does did done has
have had having can could would will shall should may might must i me my we us our you your yours he she
they them their who whom whose which what when where how any anything all some something everything
whatever none ones one and or but if so then than as at by for from in into of off on onto out over per
to up with within without about above below under after before during since until between through
against via not no nor only just also too even still again same please pls plz kindly hey hi hello dear
thanks thank show list give get got tell let see look find display fetch want need like lets know ask
many much more most least less few lot lots very really quite bit good well ok okay yes make made making
use used using take took taken taking went go going happen happened happening feel felt s t m re ve d ll
don doesn didn isn aren won st nd rd th rn asap btw fyi instead lately recently recent ever never each
every other others another whatsoever right away today yesterday ago last past previous first second
colleague colleagues team everyone somebody someone people folks hermod bot needed value number amount
longer larger greater higher lower smaller shorter bigger fewer already duration print whats whos result
results equal equals answer quick quickly briefly maybe perhaps choose next top thing things stuff
"""
_CHINESE_STOPS = """
请问 请 麻烦 帮我 帮忙 帮 给我 给 我 我们 你 您 看看 看一下 看下 看 查看 查一下 查查 查 列出 列一下 列
显示 展示 告诉 有没有 有哪些 有什么 有 哪些 哪个 哪条 哪 什么 怎么样 怎么了 怎么 多少 几 吗 呢 吧 啊 呀
了 的 得 地 是 在 对 把 被 和 与 及 跟 还有 另外 以及 并且 顺便 一下 一些 一条 那条 那个 这条 这个 这些
那些 那 这 上 里 中 内 以内 之内 以来 以上 超过 大于 高于 慢于 长于 过去 最近 近 前 条 个 次 只 只看
只要 都 也 再 就 比较 很 好 太 更 请列出 最 按 排序 换成 改成 同样 今天 昨天 需要 想 要 能 可以 会 做 到
下 从 用 为 谁 没有 没 不 出 全部 所有 现有 情况 一共 总共 拉 拉一下 排 排一下 这边 那边 多 少 来 去
起来 目录 时 时候 比 谁在 或者 或 超 至少 最多 查到 找 找出 找一下 找找 跑 出现 发生 达到 响应 属于 关于
走 走不走
"""

STOP_WORDS = frozenset(_ENGLISH_STOPS.split())
"""English words that say nothing about which tool is meant."""

STOP_CHINESE = tuple(sorted(_CHINESE_STOPS.split(), key=len, reverse=True))
"""Chinese words that say nothing about which tool is meant, longest first."""

FOLLOW_UP_ENGLISH = (
    "and",
    "what about",
    "how about",
    "same",
    "the same",
    "also",
    "now",
    "again",
    "once more",
    "repeat",
    "only",
    "just",
    "but",
    "instead",
    "or",
    "then",
    "ok and",
    "ok",
    "okay",
    "make it",
)
FOLLOW_UP_CHINESE = ("那", "呢", "同样", "换成", "改成", "再", "只看", "只要", "一样", "还是")
REPEAT = ("again", "once more", "repeat", "same again", "再来一次", "再查一次", "再来", "重复", "再看一次")
"""A whole message that asks for the last call once more."""
