import {
  type OpenApiPart,
  type Schema,
  choice,
  count,
  flag,
  listOf,
  note,
  object,
  parameter,
  reference,
  text,
} from '../../runtime/http/openapi.ts';
import { frequencies, weekdays } from '../../schedules/schedules.ts';
import { scheduleExamples } from '../api/schedule-examples.ts';
import { describeParameter, method, notFoundResponse, paramsParameter } from '../api/openapi.ts';
import { parameters } from '../api/parameters.ts';
import { ownArguments, setBySchedule } from './schedule-arguments.ts';

const schedule = object({
  idSchedule: text,
  'name?': text,
  summary: note(text, 'Filters and columns in one line.'),
  idUser: note(text, 'User of the exports.'),
  every: choice(frequencies),
  at: text,
  'weekday?': choice(weekdays),
  timezone: text,
  'catchUp?': text,
  arguments: { type: 'object', additionalProperties: listOf(text) },
  'sinceVersion?': note(text, 'First cursor of a change feed.'),
  status: choice(['Active', 'Paused', 'Stopped']),
  'reason?': note(text, 'Reason of the stop.'),
  timestampCreated: text,
  'timestampNextSlot?': note(text, 'Time at which the next export is or was due, Unix seconds.'),
  'lastSlot?': note(text, 'Newest slot with an export: its date or hour.'),
  'idRawExport?': note(text, 'Newest export of the schedule.'),
  'nextSinceVersion?': note(text, 'Next cursor of a change feed, after its last successful export.'),
});

const run = object({
  idRawExport: text,
  slot: text,
  isOnDemand: note(flag, 'Whether run.json created it.'),
  status: choice(['In progress', 'Success!', 'Error occurred', 'User error occurred', 'Canceled by user']),
  timestampCreated: text,
  'timestampFinished?': text,
  'rows?': count,
  'bytes?': count,
  'errorMessage?': text,
});

const own = ownArguments.map(({ name, meaning, allowed }) =>
  parameter(name === 'every' ? name : `${name}?`, text, `${meaning} Allowed: ${allowed}.`),
);

const ofExport = parameters.filter(({ name }) => !setBySchedule.some((set) => set === name)).map(describeParameter);

export function describeScheduleApi(): OpenApiPart {
  const id = parameter('idSchedule', text);
  const answer = reference('Schedule');
  const change = (summary: string): Schema => ({ post: method(summary, [id], answer, notFoundResponse) });
  const create = method(
    'Create a schedule that exports the period before each slot, or with sinceVersion the rows since the last export.',
    [...own, ...ofExport, paramsParameter],
    answer,
  );
  const damaged = listOf(text, 'Ids of schedules with damaged records; they create no exports.');
  const list = object({ schedules: listOf(answer), 'damaged?': damaged });
  return {
    area: 'export',
    paths: {
      '/api/schedule/v1/create.json': { post: create },
      '/api/schedule/v1/list.json': { get: method('List the schedules of the account.', [], list) },
      '/api/schedule/v1/get.json': { get: method('Get a schedule.', [id], answer, notFoundResponse) },
      '/api/schedule/v1/runs.json': {
        get: method(
          'List the newest 20 runs of a schedule, newest first.',
          [id],
          object({ runs: listOf(run) }),
          notFoundResponse,
        ),
      },
      '/api/schedule/v1/run.json': change('Run a schedule now; its slots stay.'),
      '/api/schedule/v1/pause.json': change('Pause a schedule.'),
      '/api/schedule/v1/resume.json': change('Resume a schedule that is paused or stopped.'),
      '/api/schedule/v1/delete.json': {
        post: method('Delete a schedule; its exports stay.', [id], object({ idSchedule: text }), notFoundResponse),
      },
    },
    examples: scheduleExamples,
    components: { schemas: { Schedule: schedule }, securitySchemes: {} },
  };
}
