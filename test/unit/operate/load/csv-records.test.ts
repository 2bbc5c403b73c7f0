import { describe, expect, it } from 'vitest';
import { findHeader, findLines, walkRecords } from '../../../../src/operate/load/csv-records.ts';

/** A text in pieces of one byte: what a reader of chunks must not notice. */
async function* bytesOf(text: string): AsyncGenerator<Uint8Array> {
  for (const byte of Buffer.from(text)) yield Uint8Array.of(byte);
}

describe('the records of a CSV file', () => {
  it('A header is read with its quotes, its mark and its line end, wherever the reader cuts it', async () => {
    const header = { names: ['a', 'b "c"', 'd\ne'], delimiter: ',', records: 1 };
    expect(await findHeader(bytesOf('\uFEFFa,"b ""c""","d\ne"\r\n1,2,3\n'))).toEqual(header);
    expect(await findHeader(bytesOf('a'))).toMatchObject({ names: ['a'] });
  });

  it('A header shows by what cells are separated, unless Excel says so on the line before it', async () => {
    const names = ['a', 'b'];
    expect(await findHeader(bytesOf('a;b\n1,5;2\n'))).toEqual({ names, delimiter: ';', records: 1 });
    expect(await findHeader(bytesOf('a\tb\r\n'))).toEqual({ names, delimiter: '\t', records: 1 });
    expect(await findHeader(bytesOf('"a,c"|b'))).toEqual({ names: ['a,c', 'b'], delimiter: '|', records: 1 });
    expect(await findHeader(bytesOf('\uFEFFsep=;\r\na;b\r\n'))).toEqual({ names, delimiter: ';', records: 2 });
    expect(await findHeader(bytesOf('sep=,\na;b\n'))).toMatchObject({ names: ['a;b'] });
  });

  it('A header that is empty, has an empty name, one twice or text behind a quote is none', async () => {
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

  it('A quote within a plain cell opens nothing, one behind spaces or a quotation does', async () => {
    const text = 'h,i\n5" phone,1\na,5"\n "b\nc",1\n"d" "\n",1\n"e"x\n"f""\ng",1\n';
    const lines: number[] = [];
    for await (const { line } of walkRecords(bytesOf(text), ',')) lines.push(line);
    expect(lines).toEqual([1, 2, 3, 4, 6, 8, 9]);
  });

  it('A rejected record is the first at or behind the offset that the engine gives', async () => {
    const text = 'h,i\r\n1,2\r\nbad\r\n3,4\r\n\r\nbad\r\n5,6\r\n';
    const rejected = [text.indexOf('\nbad'), text.lastIndexOf('\n\r\nbad')];
    const places = { rows: [2, 3], rejected };
    const lines = await findLines(walkRecords(bytesOf(text), ','), places, { headers: 1, skipsBlank: true });
    expect([...lines.rows.values()]).toEqual([4, 7]);
    expect([...lines.rejected.values()]).toEqual([3, 6]);
  });
});
