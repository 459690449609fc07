"""Chat platforms behind one contract (``adapters.chat``). Knows neither the engine nor the product."""
