/* Includes TEMPLATE for every kind of CSR rows: TYPED(f) is f_f32_i32, f_f32_i64, f_f64_i32 and f_f64_i64. */
#define REAL float
#define INDEX int32_t
#define TYPED(name) name##_f32_i32
#include TEMPLATE
#undef INDEX
#undef TYPED
#define INDEX int64_t
#define TYPED(name) name##_f32_i64
#include TEMPLATE
#undef REAL
#undef INDEX
#undef TYPED
#define REAL double
#define INDEX int32_t
#define TYPED(name) name##_f64_i32
#include TEMPLATE
#undef INDEX
#undef TYPED
#define INDEX int64_t
#define TYPED(name) name##_f64_i64
#include TEMPLATE
#undef REAL
#undef INDEX
#undef TYPED
#undef TEMPLATE
