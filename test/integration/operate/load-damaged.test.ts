import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import { testFolder } from '../../helpers/folder.ts';
import { openLoadArea, type LoadArea } from '../../helpers/loads.ts';

let area: LoadArea;

beforeEach(async () => {
  area = await openLoadArea(testFolder(), 'payments');
});

const header = 'tsEvent,idApp,eventId,total\n';
const rows = Array.from({ length: 20 }, (_, n) => `${1_700_000_000 + n},1,row${n},1.5\n`);
const csv = header + rows.join('');
const ndjson = rows.map((_, n) => `{"tsEvent":${1_700_000_000 + n},"idApp":1,"eventId":"row${n}"}\n`).join('');
/** Of gzip, behind the text. */
const footerBytes = 8;
/** Not made smaller, so that a cut of the file is one of its text. */
const pack = (text: string): Buffer => gzipSync(text, { level: 0 });

describe('a file that is compressed by gzip', () => {
  it('A compressed file that is cut off or damaged is refused, wherever its text ends', async () => {
    const packed = pack(csv);
    const lastRow = Buffer.byteLength(rows.at(-1) ?? '');
    const flipped = Buffer.from(packed);
    // One digit of the last row's time: still a row.
    flipped.writeUInt8(
      flipped.readUInt8(packed.length - footerBytes - lastRow) ^ 1,
      packed.length - footerBytes - lastRow,
    );
    const broken = {
      'footer.csv.gz': packed.subarray(0, -footerBytes),
      'row.csv.gz': packed.subarray(0, -footerBytes - lastRow),
      'cell.csv.gz': packed.subarray(0, -footerBytes - 2),
      'start.csv.gz': packed.subarray(0, 6),
      'flipped.csv.gz': flipped,
      'lines.ndjson.gz': pack(ndjson).subarray(0, -footerBytes),
      'member.csv.gz': Buffer.concat([packed, pack(rows.join('')).subarray(0, -footerBytes)]),
    };
    for (const [name, content] of Object.entries(broken))
      expect([name, await area.load(area.write(name, content))]).toMatchObject([
        name,
        { refused: { reason: 'bad_format', detail: expect.stringContaining('cut off or damaged') as string } },
      ]);
    expect(await area.rows('event_id')).toEqual([]);
  });

  it('A compressed file of several members is one file', async () => {
    const members = [header, ...rows].map((text) => gzipSync(text));
    expect(await area.load(area.write('members.csv.gz', Buffer.concat(members)))).toMatchObject({ stored: 20 });
  });
});
