import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { titledFields } from '../../../../src/datasets/dictionaries.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../../src/lake/sql/literals.ts';
import { loadTitles } from '../../../../src/admin/lists/load-titles.ts';
import type { RejectedList, ListInput } from '../../../../src/admin/lists/text-lines.ts';
import { findTitles } from '../../../../src/titles/title-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { listOf, listOptions } from '../../../helpers/lists.ts';

const load = (folder: string, ...lists: readonly (string | ListInput)[]) =>
  loadTitles(
    folder,
    lists.map((list) => (typeof list === 'string' ? listOf(list) : list)),
    listOptions,
  );

/** Returns the stored titles, as `field,id,title`. */
async function readTitles(folder: string): Promise<string[] | undefined> {
  const titles = await findTitles(folder);
  if (titles === undefined) return undefined;
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    const rows = await duckdb.rows(`SELECT field, id, title FROM read_parquet(${sqlText(titles.absolutePath)})`);
    return rows.map(({ field, id, title }) => `${String(field)},${String(id)},${String(title)}`);
  } finally {
    duckdb.close();
  }
}

describe('load titles', () => {
  it('Titles come from CSV with a header in any order or without one, from JSON lines, and compressed by gzip', async () => {
    const folder = path.join(testFolder(), 'lists');
    const lists = [
      'idCampaign,66,Winter\r\nidPartner,007,"a ""b"", c"\n\nidSub1,007,Text ids stay\n',
      '\uFEFFtitle,field,id\nSpring,idCampaign,67\n"",idCampaign,99\n',
      '{"field":"idAd","id":12,"title":"Ünï"}\n{"title":"日本","id":"13","field":"idAd"}\n',
      listOf(gzipSync('field,id,title\nidCampaign,68,Packed')),
    ];
    expect(await load(folder, ...lists)).toEqual({
      rows: 8,
      titles: 7,
      fields: { idAd: 2, idCampaign: 3, idPartner: 1, idSub1: 1 },
    });
    expect(await readTitles(folder)).toEqual([
      'idAd,12,Ünï',
      'idAd,13,日本',
      'idCampaign,66,Winter',
      'idCampaign,67,Spring',
      'idCampaign,68,Packed',
      'idPartner,7,a "b", c',
      'idSub1,007,Text ids stay',
    ]);
  });

  it('A row that is loaded again replaces its title, the last of several counts, and an empty title removes it', async () => {
    const folder = path.join(testFolder(), 'lists');
    await load(folder, 'idCampaign,1,a\nidCampaign,2,b\nidCampaign,3,c');
    await load(folder, 'idCampaign,1,A\nidCampaign,1,AA', 'idCampaign,01,AAA\nidCampaign,2,');
    expect(await readTitles(folder)).toEqual(['idCampaign,1,AAA', 'idCampaign,3,c']);
    expect(readdirSync(folder).filter((name) => name.endsWith('.parquet'))).toHaveLength(1);
  });

  it('A file with a bad row is refused with all files of the command, by line and reason, and nothing changes', async () => {
    const folder = path.join(testFolder(), 'lists');
    await load(folder, 'idCampaign,1,a');
    const csv = [
      'idCampaign,2,good',
      'idCampain,2,no such field',
      'rooted,1,a dictionary has it',
      'idCampaign,x,no number',
      'idCampaign,2',
      'idCampaign,,empty id',
      `idCampaign,2,${'x'.repeat(1025)}`,
      'idCampaign,2,"open',
      'idCampaign,2,a\tb',
      'idCampaign,9223372036854775808,too large',
    ].join('\n');
    const json =
      '{"field":"idAd","id":1,"title":"x"}\n{"field":"idAd","id":1}\n{"field":"idAd","id":1,"title":"","a":1}\nno\n[]';
    const refused = await load(folder, listOf(csv, 100, 'a.csv'), 'idCampaign,5,good', listOf(json, 100, 'b.json'));
    expect(refused).toMatchObject([
      { file: 'a.csv', badLines: 9 },
      { file: 'b.json', badLines: 4 },
    ]);
    const reasons = (refused as readonly RejectedList[]).map(({ first }) =>
      first.map(({ line, reason }) => `${line}: ${reason.slice(0, 24)}`),
    );
    expect(reasons).toEqual([
      [
        '2: field "idCampain" has no',
        '3: field rooted has its tit',
        '4: id of idCampaign must be',
        '5: has 2 cells instead of t',
        '6: id must have 1 to 255 ch',
        '7: title must have at most ',
        '8: has unbalanced quotes: a',
        '9: has a control character',
        '10: id of idCampaign must be',
      ],
      ['2: must have field and titl', '3: has "a", expected only f', '4: is not JSON', '5: is not a JSON object'],
    ]);
    expect(await readTitles(folder)).toEqual(['idCampaign,1,a']);
  });

  it('Titles are not added to a damaged file, and lists without a row change nothing', async () => {
    const folder = path.join(testFolder(), 'lists');
    await expect(load(folder, 'field,id,title\n')).rejects.toMatchObject({ code: 'usage' });
    expect(await findTitles(folder)).toBeUndefined();
    await load(folder, 'idCampaign,1,a');
    const file = readdirSync(folder).find((name) => name.endsWith('.parquet')) ?? '';
    writeFileSync(path.join(folder, file), 'damaged');
    await expect(load(folder, 'idCampaign,2,b')).rejects.toMatchObject({ code: 'file_damaged' });
    writeFileSync(path.join(folder, 'titles.json'), '{}');
    await expect(findTitles(folder)).rejects.toMatchObject({ code: 'record_damaged' });
  });

  it('Two concurrent loads are both in the titles', async () => {
    const folder = path.join(testFolder(), 'lists');
    await Promise.all([1, 2, 3, 4].map((id) => load(folder, `idCampaign,${id},t${id}`)));
    expect(await readTitles(folder)).toHaveLength(4);
  });

  it('Titles can be loaded for campaigns, partners and links, and not for fields of a dictionary or the registration', () => {
    const names = [...titledFields.keys()];
    expect(names).toEqual(expect.arrayContaining(['idAd', 'idCampaign', 'idPartner', 'idSub1', 'idProject']));
    for (const name of ['rooted', 'idCountry', 'idConnectionType', 'idApp', 'idPlatform', 'eventName'])
      expect(names).not.toContain(name);
  });
});
