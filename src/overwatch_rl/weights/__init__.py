"""Acting weights of a policy, published by a learner and adopted by actors."""
