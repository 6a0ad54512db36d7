// Package parquetfile reads the rows of Parquet files as values of any shape, and
// writes flat rows of typed columns.
//
// A Reader gives one row after another, each as a map from column to value, whatever
// the schema is: structs become maps and lists slices, as JSON has them, and binary
// columns bytes. It holds a page of each column it was asked for, and no row group.
//
// A Writer is told its columns and then takes rows. It writes a row group when the
// group has enough rows or bytes, so that its memory is bounded, and the file can be
// read once it is closed.
//
// What the library panics about in a broken file is an error here.
package parquetfile
