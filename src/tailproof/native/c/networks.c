/* SGD over one block of rows for softmax regression and feed-forward networks with rectified hidden layers.

   Depth first: one network is trained for a whole epoch, so that its parameters stay in the cache, instead of one
   mini-batch of every network after the other. Parameters are one vector: for each layer its weights, output by
   output, then its biases. */
#include "common.h"

#define TILE 512 /* columns at a time: a mini-batch of them stays in the fastest cache for all outputs */
#define GROUP 4  /* rows that share one reading of the weights */

#define TEMPLATE "networks.inc"
#include "each_real.h"
