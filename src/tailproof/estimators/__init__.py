"""Everything with fit and predict."""
