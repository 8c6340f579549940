"""What the activities and the in-process driver share: running tools and hooks, checking answers, prices."""
