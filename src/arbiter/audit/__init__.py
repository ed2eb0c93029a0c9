"""Static-arbitrage audits: inequalities on public prices, and a structural proof."""
