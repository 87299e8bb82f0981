// Uses the aliases of aliases.c.
int other_name(int);
extern int variable_alias;
int use_alias(int x) { return other_name(x) + variable_alias; }
int (*address_of_alias(void))(int) { return other_name; }
