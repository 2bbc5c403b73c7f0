import { beforeEach, describe, expect, it } from 'vitest';
import { listTargets, namesOf, parseFieldMap, type FieldMap } from '../../../src/admin/load/field-rules.ts';
import { findLoadMap, loadMaps } from '../../../src/datasets/dictionaries.ts';
import { createTimeReader } from '../../../src/runtime/time-format.ts';
import { testFolder } from '../../helpers/folder.ts';
import { openLoadArea, type LoadArea } from '../../helpers/loads.ts';

let area: LoadArea;
beforeEach(async () => {
  area = await openLoadArea(testFolder(), 'payments');
});

const times: Readonly<Record<string, readonly string[]>> = {
  auto: [
    '1425040205',
    '1425040205.5',
    '1425040205123',
    '1425040205123456',
    '1425040205123456789',
    '2015-02-27T12:30:05Z',
  ],
  iso: [
    '2015-02-27',
    '2015-02-27 12:30',
    '2015-02-27 12:30:05.999',
    '2015-02-27T12:30:05,5+03:00',
    '2015-02-27 12:30:05 +0300',
    '2015-02-27 12:30:05-06',
    '2015-02-27 12:30:05 UTC',
  ],
  ms: ['1425040205999'],
  '%d.%m.%Y %H:%M:%S': ['27.02.2015 12:30:05'],
};
const badTimes: Readonly<Record<string, readonly string[]>> = {
  auto: ['soon', '-5', '2015-02-30'],
  iso: ['1425040205', '2015-02-27T25:00:00Z'],
  '%d.%m.%Y': ['31.04.2015', '2015-02-27'],
};

describe('the rules of a map', () => {
  it.each(Object.keys(times))('Times of the form %s are those that an import reads', async (time) => {
    const texts = times[time] ?? [];
    const file = area.write('times.csv', `when,nr\n${texts.map((text, nr) => `"${text}",${nr}`).join('\n')}\n`);
    const map = { when: { field: 'tsEvent', time }, nr: 'eventId' };
    expect(await area.load(file, { map, idApp: 1 })).toMatchObject({ stored: texts.length });
    const rows = await area.rows('event_id, epoch_ms(event_time) AS ms');
    const stored = new Map(rows.map((row) => [row['event_id'], Number(row['ms']) / 1000]));
    const read = createTimeReader(time);
    expect(texts.map((text, nr) => [text, stored.get(String(nr))])).toEqual(texts.map((text) => [text, read?.(text)]));
  });

  it.each(Object.keys(badTimes))('A text that is not a time of the form %s makes the row bad', async (time) => {
    for (const text of badTimes[time] ?? []) {
      expect(createTimeReader(time)?.(text)).toBeUndefined();
      const file = area.write('bad.csv', `when\n"${text}"\n`);
      expect(await area.load(file, { map: { when: { field: 'tsEvent', time } }, idApp: 1 })).toMatchObject({
        bad: [{ line: 2, reason: 'bad_type', field: 'tsEvent' }],
      });
    }
  });

  it('Factors are exact, countries become ISO codes, constants fill all rows, and other columns are dropped', async () => {
    const file = area.write(
      'more.csv',
      'when,cents,land,left\n1425040205,1999,uk,x\n1425040206,-5,de,\n1425040207,0.01,,y\n',
    );
    const map: FieldMap = {
      when: { field: 'tsEvent', time: 'auto' },
      cents: { field: 'total', factor: 0.01 },
      land: { field: 'idCountryISOAlpha2', country: 'iso' },
      '*': null,
      constants: { currency: 'USD', idApp: '2' },
    };
    expect(await area.load(file, { map })).toMatchObject({ stored: 3 });
    const rows = await area.rows(
      "id_app, CAST(total AS VARCHAR) AS total, currency, coalesce(id_country_iso_alpha2, '') AS country",
    );
    expect(rows.map(({ id_app: app, total, currency, country }) => [app, total, currency, country])).toEqual([
      [2n, '19.9900', 'USD', 'GB'],
      [2n, '-0.0500', 'USD', 'DE'],
      [2n, '0.0001', 'USD', ''],
    ]);
    const bad = area.write('bad.csv', 'when,cents,land\n1425040205,many,de\n1425040205,1,Germany\n');
    expect(await area.load(bad, { map })).toMatchObject({
      bad: [
        { line: 2, reason: 'bad_type', field: 'total' },
        { line: 3, reason: 'bad_pattern', field: 'idCountryISOAlpha2' },
      ],
    });
  });

  it('A map is refused with the rule that is wrong, and its names are known to erasures', () => {
    for (const map of [
      [],
      { a: 5 },
      { a: { time: 'iso' } },
      { a: { field: 'tsEvent', time: 'soon' } },
      { a: { field: 'total', factor: -1 } },
      { a: { field: 'total', factor: '2' } },
      { a: { field: 'total', scale: 2 } },
      { a: { field: 'total', required: 1 } },
      { a: { field: 'x', country: 'alpha3' } },
      { '*': 'x' },
      { constants: { currency: 5 } },
    ])
      expect(typeof parseFieldMap(map), JSON.stringify(map)).toBe('string');
    const map: FieldMap = {
      u: 'customUserId',
      t: { field: 'tsEvent', time: 'iso' },
      n: null,
      '*': null,
      constants: { currency: 'EUR' },
    };
    expect(parseFieldMap(map)).toBe(map);
    expect(namesOf(map)).toEqual({ u: 'customUserId', t: 'tsEvent', n: null });
    expect(listTargets(map)).toEqual(['customUserId', 'tsEvent', 'currency']);
    // A column of that name.
    expect(namesOf({ constants: 'currency' })).toEqual({ constants: 'currency' });
  });
});

const [gaid, androidId] = ['11112222-3333-4444-8555-666677778888', 'a1b2c3d4e5f60718'];

function getMap(table: string, name: string): FieldMap {
  const map = parseFieldMap(findLoadMap(table, name));
  if (typeof map === 'string') throw new Error(map);
  return map;
}

/** Columns of raw-data exports as their vendors name them, and one row. */
const vendors = {
  appsflyer: {
    header:
      'Attributed Touch Type,Attributed Touch Time,Install Time,Event Time,Event Name,Media Source,Campaign,Country Code,AppsFlyer ID,Advertising ID,IDFA,Android ID,Customer User ID,IDFV,Platform',
    row: `click,2015-02-27 12:00:00,2015-02-27 12:30:05,2015-02-27 12:30:05,install,ads,Spring,UK,1425-1,${gaid},,${androidId},u-1,,android`,
    expected: [gaid, androidId, null, 'u-1', null],
  },
  adjust: {
    header:
      '{gps_adid},{idfa},{idfv},{android_id},{installed_at},{click_time},{impression_time},{country},{user_agent},{tracker_name}',
    row: `${gaid},,,${androidId},1425040205,1425040000,,gb,Agent,Ads::Spring`,
    expected: [gaid, androidId, null, null, 1_425_040_000],
  },
  branch: {
    header:
      'id,name,timestamp,timestamp_iso,last_attributed_touch_data_tilde_campaign,user_data_aaid,user_data_idfa,user_data_idfv,user_data_android_id,user_data_geo_country_code,user_data_developer_identity,user_data_user_agent',
    row: `1,INSTALL,1425040205123,2015-02-27T12:30:05.123Z,Spring,${gaid},,,${androidId},GB,u-1,Agent`,
    expected: [gaid, androidId, null, 'u-1', null],
  },
  singular: {
    header: 'android_id,campaign_name,click_id,country,event_timestamp,event_timestamp_unix_utc,gaid,idfa,partner',
    row: `${androidId},Spring,c-1,GB,2015-02-27 12:30:05,1425040205,${gaid},,ads`,
    expected: [gaid, androidId, 'c-1', null, null],
  },
} as const;

it.each(loadMaps.installs)('Raw installs of %s load with the map of the package', async (name) => {
  const installs = await openLoadArea(testFolder(), 'installs');
  const { header, row, expected } = vendors[name];
  const map = getMap('installs', name);
  expect(await installs.load(installs.write('raw.csv', `${header}\n${row}\n`), { map, idApp: 1 })).toMatchObject({
    stored: 1,
  });
  const rows = await installs.rows(
    'epoch_ms(event_time) AS ms, id_country_iso_alpha2 AS country, [gaid, android_id, click_id, custom_user_id] AS ids, epoch_ms(click_time) // 1000 AS click',
  );
  expect(rows).toMatchObject([{ ms: 1_425_040_205_000n, country: 'GB', ids: expected.slice(0, 4) }]);
  expect(rows[0]?.['click'] ?? null).toEqual(expected[4] === null ? null : BigInt(expected[4]));
});

it.each([
  ['appsflyer', '1425-1', '1425-2'],
  ['branch', '1,INSTALL', '2,INSTALL'],
] as const)('Two installs of %s in one second are two rows', async (name, id, otherId) => {
  const installs = await openLoadArea(testFolder(), 'installs');
  const { header, row } = vendors[name];
  const map = getMap('installs', name);
  const file = installs.write('raw.csv', `${header}\n${row}\n${row.replace(id, otherId)}\n${row}\n`);
  expect(await installs.load(file, { map, idApp: 1 })).toMatchObject({ stored: 2, repeats: 1 });
});

/** Raw in-app events: a purchase, and an event without revenue. */
const inAppEvents = {
  appsflyer: {
    header:
      'Attributed Touch Type,Attributed Touch Time,Install Time,Event Time,Event Name,Event Value,Event Revenue,Event Revenue Currency,Event Revenue USD,Event Source,Is Receipt Validated,Media Source,Campaign,Country Code,AppsFlyer ID,Advertising ID,IDFA,Android ID,Customer User ID,IDFV,Platform,User Agent',
    purchase: `click,2015-02-20 12:00:00,2015-02-20 12:01:00,2015-02-27 12:30:05,af_purchase,"{""af_quantity"":1,""af_order_id"":""o-1""}",4.9900,EUR,5.61,SDK,true,ads,Spring,UK,1425-1,${gaid},,${androidId},u-1,,android,"Agent, one"`,
    other: `click,2015-02-20 12:00:00,2015-02-20 12:01:00,2015-02-27 12:31:05,af_login,{},,,,SDK,,ads,Spring,UK,1425-1,${gaid},,${androidId},u-1,,android,Agent`,
    amount: 'Event Revenue,',
    user: 'u-1',
  },
  adjust: {
    header:
      '{activity_kind},{event},{event_name},{created_at},{installed_at},{revenue_float},{currency},{revenue_usd},{gps_adid},{idfa},{idfv},{android_id},{country},{user_agent},{tracker_name}',
    purchase: `event,bkrfgq,purchase_100_coins,1425040205,1424433660,4.99,EUR,5.61,${gaid},,,${androidId},gb,Agent,Ads::Spring`,
    other: `event,abcdef,login,1425040265,1424433660,,,,${gaid},,,${androidId},gb,Agent,Ads::Spring`,
    amount: '{revenue_float},',
    user: null,
  },
} as const;

it.each(loadMaps.payments)('Raw purchases of %s load as payments, and no other event becomes one', async (name) => {
  const { header, purchase, other, amount, user } = inAppEvents[name];
  const map = getMap('payments', name);
  const load = (file: string, rows: readonly string[], own: string = header) =>
    area.load(area.write(file, `${own}\n${rows.join('\n')}\n`), { map, idApp: 1 });
  expect(await load('mixed.csv', [purchase, other])).toMatchObject({
    badRows: 1,
    bad: [{ line: 3, reason: 'missing', field: 'total' }],
  });
  expect(await load('other.csv', [other], header.replace(amount, amount.replace(',', ' x,')))).toMatchObject({
    refused: { reason: 'missing_field', field: 'total' },
  });
  expect(await load('purchases.csv', [purchase])).toMatchObject({ stored: 1 });
  const rows = await area.rows(
    'epoch_ms(event_time) AS ms, total::VARCHAR AS total, currency, id_country_iso_alpha2 AS country, [gaid, android_id, custom_user_id] AS ids',
  );
  const ids = [gaid, androidId, user];
  expect(rows).toMatchObject([{ ms: 1_425_040_205_000n, total: '4.9900', currency: 'EUR', country: 'GB', ids }]);
});
