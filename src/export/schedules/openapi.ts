import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { frequencies, weekdays } from '../../schedules/slot-rule.ts';
import { describeParameter, method, notFound, object, paramsParameter, text, type Schema } from '../api/openapi.ts';
import { scheduleExamples } from '../api/openapi-examples.ts';
import { parameters } from '../api/parameters.ts';
import { ownArguments, setBySchedule } from './schedule-arguments.ts';

const schedule = object(
  {
    idSchedule: text,
    idUser: { ...text, description: 'Whose exports they are.' },
    every: { type: 'string', enum: frequencies },
    at: text,
    weekday: { type: 'string', enum: weekdays },
    timezone: text,
    catchUp: text,
    arguments: { type: 'object', additionalProperties: { type: 'array', items: text } },
    sinceVersion: { ...text, description: 'Of a change feed: the place at which it began.' },
    status: { type: 'string', enum: ['Active', 'Paused', 'Stopped'] },
    reason: { ...text, description: 'Why it is stopped.' },
    timestampCreated: text,
    timestampNextSlot: { ...text, description: 'Unix seconds: when its next export is due, or has been since.' },
    lastSlot: { ...text, description: 'Newest slot that has its export: its date, or its hour.' },
    idRawExport: { ...text, description: 'Its newest export.' },
    nextSinceVersion: { ...text, description: 'Of a change feed: the place that its last successful export ended at.' },
  },
  ['idSchedule', 'idUser', 'every', 'at', 'timezone', 'arguments', 'status', 'timestampCreated'],
);

const own = ownArguments.map(({ name, meaning, allowed }): Schema => ({
  name,
  in: 'query',
  required: name === 'every',
  description: `${meaning} Allowed: ${allowed}.`,
  schema: text,
}));

const ofExport = parameters.filter(({ name }) => !setBySchedule.some((set) => set === name)).map(describeParameter);

/** The methods of schedules in the API reference. */
export function describeScheduleApi(): OpenApiPart {
  const id: Schema = { name: 'idSchedule', in: 'query', required: true, schema: text };
  const answer: Schema = { $ref: '#/components/schemas/Schedule' };
  const create = method(
    'Have an export made again and again: of the period before each slot, or with sinceVersion of what came since the last.',
    [...own, ...ofExport, paramsParameter],
    answer,
    {},
  );
  const damaged = {
    type: 'array',
    items: text,
    description: 'Ids of those whose records are damaged: they make no exports.',
  };
  const list = object({ schedules: { type: 'array', items: answer }, damaged }, ['schedules']);
  return {
    area: 'export',
    paths: {
      '/api/schedule/v1/create.json': { post: create },
      '/api/schedule/v1/list.json': { get: method('The schedules of the account.', [], list, {}) },
      '/api/schedule/v1/get.json': { get: method('A schedule.', [id], answer, notFound) },
      '/api/schedule/v1/pause.json': { post: method('Pause a schedule.', [id], answer, notFound) },
      '/api/schedule/v1/resume.json': {
        post: method('Resume a schedule that is paused or stopped.', [id], answer, notFound),
      },
      '/api/schedule/v1/delete.json': {
        post: method('Delete a schedule; its exports stay.', [id], object({ idSchedule: text }), notFound),
      },
    },
    examples: scheduleExamples,
    components: { schemas: { Schedule: schedule }, securitySchemes: {} },
  };
}
