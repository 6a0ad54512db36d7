// Package parquetfile reads the rows of Parquet files as values of any shape, and writes flat rows
// of typed columns.
//
// A Reader returns one row after another, each as a map from column to value, for any schema:
// structs become maps and lists slices, as in JSON, and binary columns bytes. It holds a page of
// each column, and no row group.
//
// A Writer gets its columns and then the rows. It writes a row group when the group has enough rows
// or bytes, so that its memory is limited. The file can be read once the Writer is closed.
//
// A panic of the library because of a broken file becomes an error.
package parquetfile
