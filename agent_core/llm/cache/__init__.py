"""Answers that may be served again: the policy, and its tiers in memory, Redis and Milvus."""

from agent_core.llm.cache.memory import MemoryExact as MemoryExact
from agent_core.llm.cache.memory import MemorySemantic as MemorySemantic
from agent_core.llm.cache.policy import AnswerCache as AnswerCache
from agent_core.llm.cache.policy import CacheHit as CacheHit
from agent_core.llm.cache.policy import CacheQuestion as CacheQuestion
from agent_core.llm.cache.policy import Embed as Embed
