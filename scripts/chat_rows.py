"""The rows of docs/chat-bug-rows.md: bugs that other chat bots had. ``scripts.write_chat_rows`` lays them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A bug that somebody else had.

    Args:
        id: ``B001`` and so on.
        links: where it was reported: ``owner/repo#number`` or ``owner/repo@commit`` on GitHub, blanks between.
        symptom: what people saw, in our words.
        why_not: why there is no test, and what one would need; empty where there is one.
    """

    id: str
    links: str
    symptom: str
    why_not: str = ""


_APPROVALS = "there are no approval buttons yet; a test needs the approval's row and its click"

ROWS: Sequence[ChatRow] = tuple(
    ChatRow(*row)
    for row in (
        (
            "B001",
            "slackapi/bolt-python#1027 slackapi/bolt-python#868",
            "work that took longer than three seconds was done again with each redelivery",
        ),
        ("B002", "slackapi/bolt-js#2487", "an envelope came a second time with retry number 0 and was taken for new"),
        ("B003", "openclaw/openclaw#32190", "a direct message was answered once as a message and once as a mention"),
        ("B004", "openclaw/openclaw#115302", "the two deliveries of a mention put its text into the prompt twice"),
        ("B005", "errbotio/err-backend-slackv3#22", "after each reconnect every message was handled once more"),
        ("B006", "slackapi/bolt-python#1355", "looking up the authorisation held up the acknowledgement for seconds"),
        ("B007", "inkeep/agents#2284", "correcting a typo in a question brought a second answer"),
        ("B008", "NousResearch/hermes-agent#89639", "a bot that touched an old message of its own woke the agent"),
        ("B009", "NousResearch/hermes-agent#64957", "a mention added by an edit was ignored, or counted twice"),
        ("B010", "opsdroid/opsdroid#1217", "an edit event without an author crashed the process"),
        ("B011", "openclaw/openclaw#22101", "a mention without a timestamp was another message than its twin"),
        ("B012", "vercel/chat#666 vercel/chat#667", "redeliveries were thrown away, and so what came in a restart"),
        ("B013", "openclaw/openclaw#58789", "two bots answered each other until the model provider refused them"),
        ("B014", "NousResearch/hermes-agent#32791", "bots thanked each other for thanks, and nobody could stop them"),
        ("B015", "HKUDS/nanobot#3217", "no bot was ever heard, so that an alert could not wake the agent"),
        ("B016", "kirodotdev/KiroCrew#6690", "without knowing its own id the bot answered itself"),
        (
            "B017",
            "openabdev/openab#419",
            "a placeholder was edited into the answer, and a bot that waited for it saw only the placeholder",
        ),
        ("B018", "NousResearch/hermes-agent#5816", "replies of a second person in a thread were not recognised as its"),
        ("B019", "NousResearch/hermes-agent#15201", "asked in the middle of a discussion, the bot knew nothing of it"),
        ("B020", "NousResearch/hermes-agent#9394", "what followed an approval was posted outside of its thread"),
        ("B021", "NousResearch/hermes-agent#111896", "after a restart the same thread had another key and no memory"),
        ("B022", "HKUDS/nanobot@54650332f", "the first messages of all threads of a channel shared one session"),
        ("B023", "HKUDS/nanobot@0a5134448", "a post into another channel kept the thread of the first one"),
        ("B024", "HKUDS/nanobot@4801f54f5", "reminders forgot their thread in a restart"),
        ("B025", "vercel/chat#292", "an empty thread id was sent for a direct message, and refused"),
        (
            "B026",
            "vercel/chat#809 vercel/chat#815",
            "the first message of a thread could be neither edited nor reacted to",
        ),
        ("B027", "NousResearch/hermes-agent#33469", "alerts whose text lies in attachments were read as empty"),
        ("B028", "vercel/eve#1884", "of a pasted link the model saw the address and not the preview that came along"),
        ("B029", "ebibibi/ebi-agent-chat-relay#552", "a place vanished during a run; every further part failed loudly"),
        (
            "B030",
            "discord/discord-api-docs#5573",
            "a thread with slow mode 0 suddenly needed the right to manage threads",
        ),
        ("B031", "vercel/chat#279 vercel/chat#280", "where a thread existed already, the answer went to the channel"),
        ("B032", "openclaw/openclaw#114184", "two threads of a channel waited for each other"),
        ("B033", "NousResearch/hermes-agent#7358", "one thread's answer went to another, by way of the environment"),
        ("B034", "vercel/chat#832", "a queued message was answered in the thread of the one before it"),
        ("B035", "HKUDS/nanobot@d4e34f8c6", "a word to the bot itself, said during a run, went to the model as text"),
        ("B036", "VoloBuilds/openai-assistants-discord-bot#5", "a second person's message during a run crashed it"),
        ("B037", "use-agent-os/agent-os#2282", "a long code block became several messages, some of them without fence"),
        ("B038", "johndotpub/DiscordianAI#42", "an answer above the limit was refused, and nothing was shown"),
        ("B039", "errbotio/errbot#754 errbotio/errbot#1325", "words, links and tables were cut in the middle"),
        (
            "B040",
            "Cog-Creators/Red-DiscordBot#438 Cog-Creators/Red-DiscordBot#543 Cog-Creators/Red-DiscordBot#920",
            "parts grew above the limit when they were escaped, or were empty",
        ),
        (
            "B041",
            "seratch/ChatGPT-in-Slack#102 NousResearch/hermes-agent#111336",
            "edits above 4,000 were refused, and the rest of the answer was lost",
        ),
        ("B042", "slackapi/bolt-js#2509 metabase/metabase#79908", "long blocks were refused; the thread went quiet"),
        ("B043", "getnao/nao#1143", "the rows of a real query broke the table block and took the answer with them"),
        ("B044", "HKUDS/nanobot@81b669b36", "bold beside a letter or between ideographs showed its asterisks"),
        ("B045", "errbotio/errbot#1289", "a fence on one line became a row of stray backticks"),
        ("B046", "vercel/chat#565 vercel/chat#567", "a bare address was shown twice, in brackets and parentheses"),
        ("B047", "vercel/chat#756", "the id of a channel that was named in a message was lost"),
        ("B048", "fla9ua/markdown_to_mrkdwn#37", "bold in the cells of a table kept its asterisks"),
        ("B049", "NousResearch/hermes-agent#11339", "@everyone in what the model said pinged the whole server"),
        ("B050", "remoteclaw/remoteclaw#3233", "the preview of an answer could ping nobody, the answer itself could"),
        ("B051", "NousResearch/hermes-agent#26869", "a broadcast in the model's words called the whole channel"),
        ("B052", "workglow-dev/libs#805", "fetched text drew a link of its own and looked like a status"),
        ("B053", "PostHog/posthog#95054", "escaping twice broke the addresses of links"),
        ("B054", "sageox/agent-toolkit#4", "broadcasts were stopped, but anybody could be pinged by id"),
        ("B055", "vercel/chat#699 vercel/chat#701", "an announcement to @everyone was answered"),
        ("B056", "opsdroid/opsdroid#1958", "listing the channels at the start met a rate limit and ended the process"),
        (
            "B057",
            "NousResearch/hermes-agent#22398 HKUDS/nanobot#1029",
            "one 429 ended the typing sign for ever; a refusal for good made it spin",
        ),
        ("B058", "pwrdrvr/PwrAgent#220", "progress used up the rate, and the answer waited behind it"),
        (
            "B059",
            "NousResearch/hermes-agent#7686 nextcord/nextcord#310",
            "commands were registered at each reconnect, until the daily quota was spent",
        ),
        ("B060", "dust-tt/dust#5701", "an edit for every token went above the rate"),
        ("B061", "hrygo/hotplex-legacy#237", "a stream that Slack had ended swallowed the rest of the answer"),
        ("B062", "vercel/chat#330", "after a click the stream had no recipient, because the team's id lies elsewhere"),
        ("B063", "openclaw/openclaw#36935", "a streamed answer was posted once more at its end"),
        ("B064", "openclaw/openclaw#70370", "a short answer failed in its last call, and was lost or doubled"),
        ("B065", "vercel/chat#343 vercel/chat#490", "commands that came over the gateway were never answered"),
        (
            "B066",
            "NousResearch/hermes-agent#104461",
            "a 429 between deleting and creating left a server without commands",
        ),
        ("B067", "bevibing/remote-opencode#21", "a slow first word made Discord forget the command"),
        (
            "B068",
            "vercel/eve#1317 openclaw/openclaw#14258",
            "without the scope the login page was taken for the attached file",
        ),
        ("B069", "vercel/chat#188 HKUDS/nanobot@620d9e4f3", "messages with a file were not heard"),
        ("B070", "openclaw/openclaw#99021", "a file that was too large took the text of its answer along"),
        ("B071", "HKUDS/nanobot@a4acd8396", "a file's address led to a machine inside, and was followed"),
        ("B072", "slackapi/python-slack-sdk#1756", "formatted words beside an upload made it fail"),
        ("B073", "HolmesGPT/holmesgpt#754", "an upload that answered without a file took the answer with it"),
        (
            "B074",
            "slackapi/python-slack-sdk#1446 slackapi/python-slack-sdk#1110",
            "an error while connecting again left the client dead",
        ),
        (
            "B075",
            "slackapi/bolt-python#1529 slackapi/python-slack-sdk#1701",
            "the connection stood, but nothing came any more, and nobody noticed",
        ),
        ("B076", "slackapi/node-slack-sdk#1654", "too many connections: the client connected again at once, for ever"),
        ("B077", "anaclumos/tokenmaxxing#42", "two processes with one token each heard half of the events"),
        (
            "B078",
            "discord/discord-api-docs#5341 Dragory/modmailbot#620 openclaw/openclaw#68105",
            "a name written from right to left scrambled the rest of its line",
        ),
        ("B079", "discord/discord-api-docs#1193", "characters that turn text around hid what a file really is"),
        (
            "B080",
            "MarcusOtter/discord-needle#252 NousResearch/hermes-agent#83296",
            "the documented invitation lacked a permission, and nothing was said",
        ),
        ("B081", "NousResearch/hermes-agent#6735", "anybody could approve", _APPROVALS),
        ("B082", "openclaw/openclaw#71023", "the button said approved while the run went on waiting", _APPROVALS),
        ("B083", "HolmesGPT/holmesgpt#624", "files were opened in the machine's own encoding, and some broke"),
        ("B084", "agronholm/apscheduler#182", "a job that was a second late did not run at all"),
        ("B085", "greeves89/AI-Employee#268", "a time of day was taken in UTC"),
        ("B086", "sipeed/picoclaw#2702 lightdash/lightdash#15974", "one person was answered with another one's name"),
        ("B087", "seratch/ChatGPT-in-Slack#17", "the conversation was kept in a message's metadata, and did not fit"),
        ("B088", "seratch/ChatGPT-in-Slack#33", "its messages were deleted, and it did not know its thread any more"),
        ("B089", "NousResearch/hermes-agent#15421", "summing up began a new session, without what was said before"),
        ("B090", "ColeMurray/background-agents#363", "all people were called the same"),
        ("B091", "mindsdb/mindshub#10797", "a thread grew until the model refused it"),
        ("B092", "griptape-ai/griptape#474", "the errors of a tool filled the window, and the answer was empty"),
        ("B093", "Cog-Creators/Red-DiscordBot#668 stephanlensky/hyacinth#3", "an error message showed a password"),
        ("B094", "Tracer-Cloud/opensre#6048", "a token inside an address reached the log"),
        ("B095", "NousResearch/hermes-agent#10035", "what outsiders said in a thread was obeyed"),
        ("B096", "andrewyng/openworker#526", "a message could pretend to be somebody else's"),
        ("B097", "invariantlabs-ai/invariant#19", "an answer carried private data away in the address of a link"),
        ("B098", "strands-agents/harness-sdk#3467", "a message that looked like a tool call was executed"),
    )
)
"""Every reported bug that can happen on Slack. GitHub forwards between issues and pull requests."""
