import {
  type OpenApiPart,
  type Schema,
  choice,
  listOf,
  note,
  object,
  parameter,
  reference,
  text,
} from '../../runtime/http/openapi.ts';
import { frequencies, weekdays } from '../../schedules/schedules.ts';
import { scheduleExamples } from '../api/openapi-examples.ts';
import { describeParameter, method, notFound, paramsParameter } from '../api/openapi.ts';
import { parameters } from '../api/parameters.ts';
import { ownArguments, setBySchedule } from './schedule-arguments.ts';

const schedule = object({
  idSchedule: text,
  idUser: note(text, 'Whose exports they are.'),
  every: choice(frequencies),
  at: text,
  'weekday?': choice(weekdays),
  timezone: text,
  'catchUp?': text,
  arguments: { type: 'object', additionalProperties: listOf(text) },
  'sinceVersion?': note(text, 'Of a change feed: the place at which it began.'),
  status: choice(['Active', 'Paused', 'Stopped']),
  'reason?': note(text, 'Why it is stopped.'),
  timestampCreated: text,
  'timestampNextSlot?': note(text, 'Unix seconds: when its next export is due, or has been since.'),
  'lastSlot?': note(text, 'Newest slot that has its export: its date, or its hour.'),
  'idRawExport?': note(text, 'Its newest export.'),
  'nextSinceVersion?': note(text, 'Of a change feed: the place that its last successful export ended at.'),
});

const own = ownArguments.map(({ name, meaning, allowed }) =>
  parameter(name === 'every' ? name : `${name}?`, text, `${meaning} Allowed: ${allowed}.`),
);

const ofExport = parameters.filter(({ name }) => !setBySchedule.some((set) => set === name)).map(describeParameter);

export function describeScheduleApi(): OpenApiPart {
  const id = parameter('idSchedule', text);
  const answer = reference('Schedule');
  const change = (summary: string): Schema => ({ post: method(summary, [id], answer, notFound) });
  const create = method(
    'Have an export made again and again: of the period before each slot, or with sinceVersion of what came since the last.',
    [...own, ...ofExport, paramsParameter],
    answer,
  );
  const damaged = listOf(text, 'Ids of those whose records are damaged: they make no exports.');
  const list = object({ schedules: listOf(answer), 'damaged?': damaged });
  return {
    area: 'export',
    paths: {
      '/api/schedule/v1/create.json': { post: create },
      '/api/schedule/v1/list.json': { get: method('The schedules of the account.', [], list) },
      '/api/schedule/v1/get.json': { get: method('A schedule.', [id], answer, notFound) },
      '/api/schedule/v1/pause.json': change('Pause a schedule.'),
      '/api/schedule/v1/resume.json': change('Resume a schedule that is paused or stopped.'),
      '/api/schedule/v1/delete.json': {
        post: method('Delete a schedule; its exports stay.', [id], object({ idSchedule: text }), notFound),
      },
    },
    examples: scheduleExamples,
    components: { schemas: { Schedule: schedule }, securitySchemes: {} },
  };
}
