"""ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div: functions of the special function unit (MUFU), and what ptxas puts around it."""
