import { describe, expect, it } from 'vitest';
import { findHeader, findLines, walkRecords } from '../../../../src/admin/load/csv-records.ts';

/** Yields a text in chunks of one byte. */
async function* bytesOf(text: string): AsyncGenerator<Uint8Array> {
  for (const byte of Buffer.from(text)) yield Uint8Array.of(byte);
}

describe('the records of a CSV file', () => {
  it('A header is read with its quotes, its mark and its line end, wherever the reader cuts it', async () => {
    const header = { names: ['a', 'b "c"', 'd\ne'], delimiter: ',', records: 1 };
    expect(await findHeader(bytesOf('\uFEFFa,"b ""c""","d\ne"\r\n1,2,3\n'))).toEqual(header);
    expect(await findHeader(bytesOf('a'))).toMatchObject({ names: ['a'] });
  });

  it('A header shows the separator of cells, unless Excel names it on the line before', async () => {
    const names = ['a', 'b'];
    expect(await findHeader(bytesOf('a;b\n1,5;2\n'))).toEqual({ names, delimiter: ';', records: 1 });
    expect(await findHeader(bytesOf('a\tb\r\n'))).toEqual({ names, delimiter: '\t', records: 1 });
    expect(await findHeader(bytesOf('"a,c"|b'))).toEqual({ names: ['a,c', 'b'], delimiter: '|', records: 1 });
    expect(await findHeader(bytesOf('\uFEFFsep=;\r\na;b\r\n'))).toEqual({ names, delimiter: ';', records: 2 });
    expect(await findHeader(bytesOf('sep=,\na;b\n'))).toMatchObject({ names: ['a;b'] });
  });

  it('A header is invalid if it is empty, or has an empty name, a repeated name or text after a quote', async () => {
    for (const text of ['', '\n', 'a,,b\n', 'a,a\n', '"a"b,c\n', '"a\n'])
      expect(await findHeader(bytesOf(text))).toBeUndefined();
  });

  it('Rows are found on the lines on which they begin, past blank lines, rejected ones and line breaks in quotes', async () => {
    const text = 'h,i\n1,"x\ny"\n\n2,b\nbad\n3,c';
    const places = { rows: [1, 2, 3], rejected: [text.indexOf('bad')] };
    const lines = await findLines(walkRecords(bytesOf(text), ','), places, { headers: 1, skipsBlank: true });
    expect([...lines.rows]).toEqual([
      [1, 2],
      [2, 5],
      [3, 7],
    ]);
    expect([...lines.rejected.values()]).toEqual([6]);
  });

  it('A quote within a plain cell opens nothing, and a quote after spaces or a quotation does', async () => {
    const text = 'h,i\n5" phone,1\na,5"\n "b\nc",1\n"d" "\n",1\n"e"x\n"f""\ng",1\n';
    const lines: number[] = [];
    for await (const { line } of walkRecords(bytesOf(text), ',')) lines.push(line);
    expect(lines).toEqual([1, 2, 3, 4, 6, 8, 9]);
  });

  it('A rejected record is the first at or after the offset that the engine reports', async () => {
    const text = 'h,i\r\n1,2\r\nbad\r\n3,4\r\n\r\nbad\r\n5,6\r\n';
    const rejected = [text.indexOf('\nbad'), text.lastIndexOf('\n\r\nbad')];
    const places = { rows: [2, 3], rejected };
    const lines = await findLines(walkRecords(bytesOf(text), ','), places, { headers: 1, skipsBlank: true });
    expect([...lines.rows.values()]).toEqual([4, 7]);
    expect([...lines.rejected.values()]).toEqual([3, 6]);
  });
});
