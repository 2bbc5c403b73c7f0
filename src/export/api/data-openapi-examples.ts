import type { OpenApiExample } from '../../runtime/http/openapi.ts';

const done = (data: unknown): unknown => ({ code: 200, message: 'Ok', data });
const days = { dateFrom: '2026-01-01', dateTo: '2026-01-07' };
const version = '812';
const field = {
  name: 'customEventName',
  column: 'custom_event_name',
  type: 'VARCHAR',
  description: 'Name of the custom event.',
  filled: 4200,
};

/** The examples of what an account has, by path. */
export const dataExamples: Readonly<Record<string, OpenApiExample>> = {
  '/api/data/v1/apps.json': {
    given: { search: 'game', limit: 100 },
    answer: done({ apps: [{ idApp: '1', title: 'My game', platform: 'web' }], total: 1 }),
  },
  '/api/data/v1/volume.json': {
    given: { idApp: '1', ...days },
    answer: done({ version, ...days, days: [{ date: days.dateFrom, kind: 'custom_event', events: 4200 }] }),
  },
  '/api/data/v1/fields.json': {
    given: { idApp: '1', kind: 'custom_event', ...days },
    answer: done({ version, kind: 'custom_event', looked: 4200, ...days, isWhole: true, fields: [field] }),
  },
};
