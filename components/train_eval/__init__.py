"""The figures of the page on train and eval mode: one chart a study, with its headline numbers."""
