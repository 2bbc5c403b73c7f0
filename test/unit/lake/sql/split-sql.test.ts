import { describe, expect, it } from 'vitest';
import { splitSql } from '../../../../src/lake/sql/literals.ts';

describe('a text of SQL', () => {
  it.each([
    ['SELECT 1; SELECT 2;', ['SELECT 1', 'SELECT 2'], ''],
    ['SELECT 1;\nSELECT', ['SELECT 1'], 'SELECT'],
    ["SELECT ';', 'it''s;'; x", ["SELECT ';', 'it''s;'"], 'x'],
    ["SELECT e'a\\';b'; y", ["SELECT e'a\\';b'"], 'y'],
    ['SELECT 1 -- a; b\n, 2; z', ['SELECT 1 -- a; b\n, 2'], 'z'],
    ['SELECT /* ; /* ; */ ; */ 1; z', ['SELECT /* ; /* ; */ ; */ 1'], 'z'],
    ['SELECT $$;$$, $a$ ; $$ ; $a$; z', ['SELECT $$;$$, $a$ ; $$ ; $a$'], 'z'],
    [';; -- nothing\n ; /* nor here */', [], ''],
    ["SELECT 'open; ", [], "SELECT 'open;"],
  ])('SQL is split at its semicolons except those in strings and comments: %j', (text, statements, rest) => {
    expect(splitSql(text)).toEqual({ statements, rest });
  });
});
