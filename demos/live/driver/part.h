/* What the two files of the driver's program share. */
#ifndef PART_H
#define PART_H
#define ROUNDS 1000
extern unsigned rounds;
unsigned part(unsigned state);
#endif
