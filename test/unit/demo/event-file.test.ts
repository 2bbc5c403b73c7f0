import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { checkReadable, readEventFile, readFileLines, type DemoEvent } from '../../../src/demo/demo-client.ts';
import { testFolder } from '../../helpers/folder.ts';

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}

describe('a file of events', () => {
  const text = '{"customEventName":"a","eventTimestamp":"1700000000"}\r\n\n{"customEventName":"b"}';
  const events: DemoEvent[] = [
    { json: '{"customEventName":"a","eventTimestamp":"1700000000"}', name: 'a', timestamp: 1_700_000_000 },
    { json: '{"customEventName":"b"}', name: 'b', timestamp: undefined },
  ];

  it('A file of events is read line by line, plain and gzipped', async () => {
    const folder = testFolder();
    writeFileSync(path.join(folder, 'events.ndjson'), text);
    writeFileSync(path.join(folder, 'events.ndjson.gz'), gzipSync(text));
    expect(await collect(readEventFile(path.join(folder, 'events.ndjson')))).toEqual(events);
    expect(await collect(readEventFile(path.join(folder, 'events.ndjson.gz')))).toEqual(events);
  });

  it('A file of events is refused with the line that is wrong', async () => {
    const file = path.join(testFolder(), 'events.ndjson');
    writeFileSync(file, '{"customEventName":"a"}\n[1]\n');
    await expect(collect(readEventFile(file))).rejects.toThrow(/line 2: not a JSON object: \[1\]/);
  });

  it('A file of events is refused when it is missing, or is not a gzip file', async () => {
    const folder = testFolder();
    await expect(checkReadable(path.join(folder, 'none.ndjson'))).rejects.toMatchObject({ code: 'not_found' });
    writeFileSync(path.join(folder, 'plain.ndjson.gz'), text);
    await expect(collect(readEventFile(path.join(folder, 'plain.ndjson.gz')))).rejects.toMatchObject({ code: 'usage' });
  });

  it('The reader of a file of events can stop after the first lines', async () => {
    const file = path.join(testFolder(), 'many.csv.gz');
    writeFileSync(file, gzipSync('a line\n'.repeat(100_000)));
    const lines: string[] = [];
    for await (const line of readFileLines(file)) {
      lines.push(line);
      if (lines.length === 2) break;
    }
    expect(lines).toEqual(['a line', 'a line']);
  });
});
