"""A thousand processes crawl into one data set: what that asks of a store, on paper and by simulation."""
