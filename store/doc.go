// Package store writes every final result with its sample to an SQLite file, so that a training run can be
// inspected, exported and scored again after it has ended.
//
//	s, err := store.Open(ctx, cfg, store.Options{Path: "8080.db"})
//	s.Put(store.Record{…})   // never blocks: a goroutine writes in batches
//	rows, n, err := s.Reader().Results(ctx, store.Query{Run: &run, Step: &step})
//
// One goroutine writes rows, and another one makes thumbnails of pictures within a share of the CPUs. Both have
// bounded queues: items that do not fit are counted and left out, and scoring never waits for either. The size
// of the file is limited as well; the oldest rows are deleted first.
//
// A row consists of the sample's header and the result's message as they were sent, and a few columns for
// queries. If a restarted trainer repeats a step, the step has rows of another epoch; queries return the rows
// of the newest epoch that has the step.
//
// A Reader can read the file while it is written, in the same process or in another process.
package store
