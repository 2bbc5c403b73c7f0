import { expect, test } from 'vitest';
import { summarizeExport } from '../../../../src/export/api/summary.ts';

const apps = [
  { idApp: 7, sdkKey: 'k7', title: 'Shop', platform: 'web', idAccount: 1, idProject: undefined },
  { idApp: 8, sdkKey: 'k8', title: '', platform: 'web', idAccount: 1, idProject: undefined },
];

const summarize = (query: string): string => {
  const names = new Set(new URLSearchParams(query).keys());
  return summarizeExport(
    [...names].map((name) => [name, new URLSearchParams(query).getAll(name)] as const),
    apps,
  );
};

test.each([
  ['event=hits&selectors=eventId', 'Hits; columns eventId; csv'],
  [
    'event=customEvents&selectors=eventId,tsEvent&idApp=7,8,9&dateFrom=2026-01-01&dateTo=2026-01-02&timezone=UTC',
    'Custom events where app is Shop, 8 or 9; columns eventId and tsEvent; csv',
  ],
  [
    'event=customEvents&selectors=a,b,c,d,e&eventName=x,y&eventName=z&eventNameInvert=1&params[level]=3&format=jsonl&compression=zstd',
    'Custom events where event name is not x,y or z, and level is 3; columns a, b, c and 2 more; jsonl, zstd',
  ],
  [
    'event=deviceRegistrations&selectors=a,b,c,d&idCountry=188,16,17,18,19&SDKKey=k7&isVerified=1&name=n&sinceVersion=0',
    'Device registrations where country is Russia, Uzbekistan, Tajikistan or 2 more, and app is Shop, and verified is verified; columns a, b, c and d; csv',
  ],
  [
    'event=customEvents&selectors=a,b&columns=params&dialect=excel&paramsGreater[level]=20&paramsNot[note]=x&paramsNot[note]=y',
    'Custom events where level is greater than 20, and note is not x or y; columns a and b, and one per parameter; csv, excel',
  ],
  [
    'event=customEvents&selectors=a&paramsLess[level]=2&paramsContain[note]=x&paramsSet[coins]=1&paramsSet[gems]=0',
    'Custom events where level is less than 2, and note contains x, and coins is set, and gems is not set; columns a; csv',
  ],
])('The summary of %s has its filters and columns', (query, wanted) => {
  expect(summarize(query)).toBe(wanted);
});

test('A filter that this version does not know is named as it was given', () => {
  expect(summarize('event=hits&selectors=a&params[level][gt]=3&newThing=x')).toBe(
    'Hits where level is 3, and new thing is x; columns a; csv',
  );
});
