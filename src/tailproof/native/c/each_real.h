/* Includes TEMPLATE for rows in single and in double precision: TYPED(f) is f_f32, then f_f64. */
#define REAL float
#define TYPED(name) name##_f32
#include TEMPLATE
#undef REAL
#undef TYPED
#define REAL double
#define TYPED(name) name##_f64
#include TEMPLATE
#undef REAL
#undef TYPED
#undef TEMPLATE
