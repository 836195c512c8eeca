"""The load that a thousand processes crawling into one data set put on a store, calculated and simulated."""
