"""What the page on the profile of a step is made of."""
