import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { datasets } from '../../../src/datasets/dataset.ts';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { parseCsv } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { loadTestTitles } from '../../helpers/lists.ts';
import { runHere } from '../../helpers/worker-here.ts';

// Tests the cells, not the process.

const start = Date.parse('2025-05-01T00:00:00Z') / 1000;
const days = 'dateFrom=2025-05-01&dateTo=2025-05-02&timezone=UTC';

const row = (n: number, values: Readonly<Record<string, unknown>>): FixtureEvent => ({
  event_id: `r${n}`,
  id_app: 1,
  // Not in the order of the rows.
  event_time: start + ((n * 7) % 10),
  available_at: start + 4000,
  ...values,
});

const hits = [
  row(1, { id_campaign: 66, id_campaign_title: 'of the row', rooted: 1, rooted_title: 'of the row' }),
  row(2, { id_campaign: 67, id_campaign_title: 'of the row' }),
  row(3, { id_campaign: 66 }),
  row(4, { id_campaign_title: 'without an id' }),
  row(5, { id_campaign_attr: 66, id_sub1: '007', id_sub1_title: 'of the row' }),
  row(6, { id_campaign_attr: 68, id_ad: 9_007_199_254_740_993n.toString() }),
];

describe('titles', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;

  const cellsOf = async (event: string, selectors: string, more = ''): Promise<string[][]> =>
    parseCsv((await running.export(user, `event=${event}&selectors=${selectors}&${days}${more}`)).join('')).slice(1);

  const attributedTitles = async (): Promise<(string | undefined)[]> =>
    (await cellsOf('hits', 'idCampaignAttrTitle,idCampaignTitle')).map(([title]) => title);

  beforeAll(async () => {
    await area.addApp({ idApp: 1, platform: 'web', idAccount: 1, idProject: 12 });
    user = await area.addUser({});
    await writeLake(path.join(area.dataDir, 'lake', 'hits'), [hits], datasets.get('hits')?.columns ?? []);
    await writeLake(area.tableDir, [
      [
        { ...row(7, { custom_user_id: 'ann' }), kind: 'login' },
        { ...row(8, { custom_user_id: 'ann', custom_event_name: 'x' }), kind: 'custom_event' },
      ],
    ]);
    running = await area.start({ runAttempt: runHere, maxExports: 100 });
  }, 60_000);
  afterAll(() => running.stop());

  it('Without loaded titles the row has its own, except for those of a dictionary', async () => {
    expect(await cellsOf('hits', 'eventId,idCampaignTitle,rootedTitle')).toEqual([
      ['r1', 'of the row', expect.not.stringMatching(/^of the row$|^$/) as string],
      ['r2', 'of the row', ''],
      ['r3', '', ''],
      ['r4', 'without an id', ''],
      ['r5', '', ''],
      ['r6', '', ''],
    ]);
  });

  it('A loaded title replaces that of the row, immediately after the load, and the rows keep their order', async () => {
    await loadTestTitles(area.titlesDir, [
      'idCampaign,66,Winter',
      'idSub1,007,Bond',
      'idSub1,7,No',
      'idProject,12,"Project, the 12th"',
      'idAd,9007199254740993,Exact',
    ]);
    expect(await cellsOf('hits', 'eventId,idCampaignTitle')).toEqual([
      ['r1', 'Winter'],
      ['r2', 'of the row'],
      ['r3', 'Winter'],
      ['r4', 'without an id'],
      ['r5', ''],
      ['r6', ''],
    ]);
    expect((await cellsOf('hits', 'eventId,idCampaignTitle', '&order=time')).map(([id]) => id)).toEqual(
      hits.toSorted((a, b) => a.event_time - b.event_time).map(({ event_id }) => event_id),
    );
    expect(await cellsOf('hits', 'idSub1Title,idAdTitle')).toEqual([
      ['', ''],
      ['', ''],
      ['', ''],
      ['', ''],
      ['Bond', ''],
      ['', 'Exact'],
    ]);
  });

  it('An attributed id shows the title of the object itself, unless its own field has a loaded title', async () => {
    expect(await attributedTitles()).toEqual(['', '', '', '', 'Winter', '']);
    await loadTestTitles(area.titlesDir, ['idCampaignAttr,66,Attributed', 'idCampaign,68,Spring']);
    expect(await attributedTitles()).toEqual(['', '', '', '', 'Attributed', 'Spring']);
  });

  it('Imported and derived events show the loaded title of their project, in every format', async () => {
    const title = 'Project, the 12th';
    expect(await cellsOf('customEvents', 'eventId,idProject,idProjectTitle')).toEqual([['r8', '12', title]]);
    expect(await cellsOf('newUsers', 'eventId,idProjectTitle')).toEqual([[expect.any(String) as string, title]]);
    const [line = ''] = await running.export(
      user,
      `event=customEvents&selectors=idProjectTitle,eventId&${days}&format=jsonl`,
    );
    expect(JSON.parse(line)).toEqual({ idProjectTitle: title, eventId: 'r8' });
    expect(await cellsOf('customEvents', 'idCampaignTitle,eventId')).toEqual([['', 'r8']]);
  });
});
