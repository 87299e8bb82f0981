// One image of bitcode, IR text and an object file that call each other and share data.
// extra: mixed_files_text.ll
// object: mixed_files_object.c
// gate: B
#include <stdio.h>

int from_object(int x);
int from_text(int x);
int shared = 5;
extern int object_data[3];
extern const int text_data;
int back(int x) { return x + shared; }
int (*object_pointer(void))(int);

int main(void) {
  printf("%d %d\n", from_object(10), from_text(20));
  printf("%d %d\n", object_data[1], text_data);
  printf("%d %d\n", shared, object_pointer() == back);
}
