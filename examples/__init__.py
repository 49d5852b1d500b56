"""Programs that show the product at work; the tests run them."""
