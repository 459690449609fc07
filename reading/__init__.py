"""Reading questions without a language model: words, numbers, times, expressions, and what tools need of them."""
