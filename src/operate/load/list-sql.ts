import { sqlText } from '../../lake/sql/literals.ts';

/**
 * Lists in a text: an array literal as exports write it (`['a','it\'s']`: quotes, backslashes and line breaks escaped
 * by a backslash), or a list of JSON (`["a","b"]`). Pure.
 */

const item = String.raw`'(?:[^'\\]|\\.)*'`;
const literal = String.raw`(?s)\[\s*(?:${item}(?:\s*,\s*${item})*)?\s*\]`;

/**
 * The texts of a list that stands in `cell`, the name of a column; NULL where it has none, and where it is no list of
 * texts. Items are unescaped from left to right: what stands between two backslashes that belong together is split
 * first.
 */
export function listSql(cell: string): string {
  const unescape = String.raw`array_to_string(list_transform(string_split(part, '\\'), lambda piece:
    replace(replace(replace(piece, '\n', chr(10)), '\r', chr(13)), '\''', '''')), '\')`;
  const items = `regexp_extract_all(${cell}, ${sqlText(String.raw`(?s)'((?:[^'\\]|\\.)*)'`)}, 1)`;
  return `CASE WHEN regexp_full_match(${cell}, ${sqlText(literal)}) THEN list_transform(${items}, lambda part: ${unescape})
    WHEN json_valid(${cell}) THEN CASE WHEN json_type(${cell}) = 'ARRAY' THEN
      CASE WHEN len(list_filter(CAST(${cell} AS JSON[]), lambda one: json_type(one) <> 'VARCHAR')) = 0
      THEN list_transform(CAST(${cell} AS JSON[]), lambda one: one ->> '$') END END END`;
}
