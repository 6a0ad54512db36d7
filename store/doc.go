// Package store keeps every final result with its sample in an SQLite file, so that a training run can be inspected,
// exported and scored again after it has ended.
//
//	s, err := store.Open(cfg, store.Options{Path: "8080.db"})
//	s.Put(store.Record{…})   // never waits: a goroutine writes in batches
//	rows, n, err := s.Results(ctx, store.Query{Run: "a", Step: 3})
//
// One goroutine writes rows, another one makes thumbnails of pictures within a share of the CPUs. Both have bounded queues: what
// does not fit is counted and left out, and scoring never waits for either. The file is bounded as well; the oldest rows go first.
//
// A row is the sample's header and the result's message as they travelled, beside the few columns that queries select by. A step
// that a trainer does again after it was started anew has rows of another epoch: queries show those of the newest epoch that has the step.
//
// Who reads (Reader) opens the same file, in this process or another one, while it is written.
package store
