import { describe, expect, it } from 'vitest';
import { applicableRange, checkPreconditions, type ConditionalHeaders } from '../../../src/reports/preconditions.ts';

const etag = '"abc"';

describe('the conditions of a download (RFC 9110, 13)', () => {
  it.each<[string, ConditionalHeaders, string]>([
    ['no condition', {}, 'proceed'],
    ['If-Match of the file', { 'if-match': '"abc"' }, 'proceed'],
    ['If-Match of any file', { 'if-match': '*' }, 'proceed'],
    ['If-Match of several', { 'if-match': '"x", "abc" ,"y"' }, 'proceed'],
    ['If-Match of another', { 'if-match': '"x"' }, 'failed'],
    ['If-Match compares strongly', { 'if-match': 'W/"abc"' }, 'failed'],
    ['If-Match of a tag with a comma in it', { 'if-match': '"x,\u0020abc"' }, 'failed'],
    ['If-Match without quotes is not a tag', { 'if-match': 'abc' }, 'failed'],
    ['If-Match of nothing', { 'if-match': '' }, 'failed'],
    ['If-None-Match of the file', { 'if-none-match': '"abc"' }, 'not_modified'],
    ['If-None-Match compares weakly', { 'if-none-match': 'W/"x", W/"abc"' }, 'not_modified'],
    ['If-None-Match of any file', { 'if-none-match': '*' }, 'not_modified'],
    ['If-None-Match of another', { 'if-none-match': '"x"' }, 'proceed'],
    ['If-None-Match of a tag with a comma in it', { 'if-none-match': '"x,"abc""' }, 'proceed'],
    ['If-Match comes first', { 'if-match': '"x"', 'if-none-match': '"abc"' }, 'failed'],
    ['both', { 'if-match': '"abc"', 'if-none-match': '"abc"' }, 'not_modified'],
  ])('The outcome of the conditions is as RFC 9110 requires: %s', (_rule, headers, expected) => {
    expect(checkPreconditions(headers, etag)).toBe(expected);
  });

  it('A file without a tag meets only the condition *', () => {
    expect(
      [{ 'if-match': '*' }, { 'if-match': '"abc"' }, { 'if-none-match': '"abc"' }, { 'if-none-match': '*' }].map(
        (headers) => checkPreconditions(headers, undefined),
      ),
    ).toEqual(['proceed', 'failed', 'proceed', 'not_modified']);
  });

  it.each<[string, ConditionalHeaders, string | undefined]>([
    ['Range alone', { range: 'bytes=1-' }, 'bytes=1-'],
    ['Range of this file', { range: 'bytes=1-', 'if-range': '"abc"' }, 'bytes=1-'],
    ['Range of another file', { range: 'bytes=1-', 'if-range': '"x"' }, undefined],
    ['If-Range compares strongly', { range: 'bytes=1-', 'if-range': 'W/"abc"' }, undefined],
    ['If-Range of a date', { range: 'bytes=1-', 'if-range': 'Sat, 01 Jan 2028 00:00:00 GMT' }, undefined],
  ])('The Range is used or ignored as RFC 9110 requires: %s', (_rule, headers, expected) => {
    expect(applicableRange(headers, etag)).toBe(expected);
  });
});
