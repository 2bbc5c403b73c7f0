import { describe, expect, it } from 'vitest';
import { parseRange } from '../../../src/reports/preconditions.ts';

describe('a Range header', () => {
  it.each([
    ['bytes=0-0', 10, { kind: 'part', first: 0, last: 0 }],
    ['bytes=2-5', 10, { kind: 'part', first: 2, last: 5 }],
    ['bytes=5-', 10, { kind: 'part', first: 5, last: 9 }],
    ['bytes=5-99', 10, { kind: 'part', first: 5, last: 9 }],
    ['bytes=-3', 10, { kind: 'part', first: 7, last: 9 }],
    ['bytes=-99', 10, { kind: 'part', first: 0, last: 9 }],
    ['Bytes=0-1', 10, { kind: 'part', first: 0, last: 1 }],
  ])('The Range %s of %i bytes selects a part', (header, size, range) => {
    expect(parseRange(header, size)).toEqual(range);
  });

  it.each(['bytes=10-', 'bytes=10-20', 'bytes=-0'])('The Range %s is outside of a file of 10 bytes', (header) => {
    expect(parseRange(header, 10)).toEqual({ kind: 'unsatisfiable' });
  });

  it.each([
    undefined,
    '',
    'bytes',
    'bytes=',
    'bytes=-',
    'bytes=5-2',
    'bytes=1-2,4-5',
    'items=0-1',
    'bytes=a-b',
    'bytes=1.5-2',
    'bytes= 1-2',
    'bytes=9999999999999999999-',
  ])('The Range %s is ignored, and the response is the whole file', (header) => {
    expect(parseRange(header, 10)).toEqual({ kind: 'whole' });
  });

  it('A Range finds no part in an empty file', () => {
    expect(parseRange('bytes=0-', 0)).toEqual({ kind: 'unsatisfiable' });
  });
});
