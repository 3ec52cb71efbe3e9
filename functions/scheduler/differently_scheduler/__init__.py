"""Entry points that move waiting and due work along: tick, dispatch, worker, settle."""
