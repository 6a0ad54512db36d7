// Package plot draws the figures of the bench as pictures: bars in groups, lines, and
// bands over time.
//
// The life of a picture: a suite has its report and puts the numbers into plain data
// (BarsData, LinesData, BandsData), with a title, units and a foot that says where and
// when they were measured. The function of the same name checks the data, draws it with
// gonum's plot on a white sheet, and writes the file, SVG or PNG by the name's ending.
// The same data gives the same bytes.
//
// Colours are those of Okabe and Ito (2008), which people with any colour vision tell
// apart; series that are steps of one quantity are shades of one blue instead.
package plot
