import { describeFormerNames } from '../../runtime/former-names.ts';
import {
  type OpenApiPart,
  type Schema,
  choice,
  count,
  flag,
  listOf,
  moment,
  note,
  object,
  parameter,
  text,
} from '../../runtime/http/openapi.ts';
import { messageTypes } from '../../webhooks/delivery-log.ts';
import { rotationHours } from '../../webhooks/webhook-store.ts';
import { notice } from './account-openapi.ts';
import { webhookExamples } from './schedule-examples.ts';
import { members, slot } from './openapi-schemas.ts';
import { method, notFoundResponse } from './openapi.ts';

const endedExportMembers = {
  ...members(text, 'idRawExport', 'idReportFile', 'event', 'status'),
  ...slot,
  'errorMessage?': text,
  ...members(count, 'files?', 'rows?', 'bytes?'),
  'version?': text,
  'nextSinceVersion?': text,
};
const endedExport = describeFormerNames('export', object(endedExportMembers));

const stoppedSchedule = object({ idSchedule: text, 'name?': text, event: text, reason: text });

const describeMessage = (types: readonly string[], data: Schema): Schema =>
  object({ id: text, type: choice(types), timestamp: moment, data });

const message = {
  '{$request.query.url}': {
    post: {
      summary: 'An export has ended, the catalogue has a new notice, a schedule has stopped, or a user sends a test.',
      parameters: ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) =>
        parameter(name, text, undefined, 'header'),
      ),
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: {
              oneOf: [
                describeMessage(['export.finished', 'export.failed'], endedExport),
                describeMessage(['catalogue.notice'], notice),
                describeMessage(['schedule.stopped'], stoppedSchedule),
                describeMessage(['webhook.test'], object({})),
              ],
            },
          },
        },
      },
      responses: {
        '2XX': { description: 'Acknowledges the message. Any other status except 410 is retried.' },
        410: { description: 'Disables retries of the message.' },
      },
    },
  },
};

const delivery = object({
  idMessage: text,
  type: choice(messageTypes),
  'subject?': note(text, 'Id of the export, schedule or notice.'),
  isDelivered: flag,
  'responseCode?': note(count, 'HTTP status of the response; absent without one.'),
  'error?': text,
  attempts: count,
  timestampLastAttempt: text,
});

function describeWebhooks(): Record<string, Schema> {
  const webhook = { idWebhook: text, url: { type: 'string', format: 'uri' }, timestampCreated: text };
  const itemMembers = {
    ...webhook,
    'timestampFormerSecretEnds?': note(text, 'Until then the former secret also signs, Unix seconds.'),
    'timestampLastAttempt?': note(text, 'Time of the last delivery attempt, Unix seconds.'),
    'lastError?': note(text, 'Error of that attempt; absent if it was acknowledged.'),
  };
  const items = describeFormerNames('webhook', object(itemMembers));
  const damaged = listOf(text, 'Ids of webhooks with damaged records; they receive no messages.');
  const secret = note(text, 'Signing secret of the messages; shown once.');
  const summary = 'Create a webhook for ended exports, stopped schedules and catalogue notices of the account.';
  const create = method(summary, [parameter('url', text)], object({ ...webhook, secret }));
  const list = object({ webhooks: listOf(items), 'damaged?': damaged });
  const removed = object({ idWebhook: text });
  const id = parameter('idWebhook', text);
  const idMessage = parameter('idMessage', text, 'Id of one of the last deliveries.');
  const hours = parameter(
    'hours?',
    { type: 'integer', minimum: 0, maximum: rotationHours.most, default: rotationHours.fallback },
    'Hours for which the former secret also signs.',
  );
  const rotated = object({ ...webhook, 'timestampFormerSecretEnds?': text, secret });
  return {
    '/api/webhook/v1/create.json': { post: { ...create, callbacks: { message } } },
    '/api/webhook/v1/list.json': { get: method('List the webhooks of the account.', [], list) },
    '/api/webhook/v1/delete.json': { post: method('Delete a webhook.', [id], removed, notFoundResponse) },
    '/api/webhook/v1/deliveries.json': {
      get: method(
        'List the last 50 messages of a webhook, newest attempt first.',
        [id],
        object({ deliveries: listOf(delivery) }),
        notFoundResponse,
      ),
    },
    '/api/webhook/v1/test.json': {
      post: method('Send a test message to a webhook.', [id], delivery, notFoundResponse),
    },
    '/api/webhook/v1/resend.json': {
      post: method('Send one of the last messages again.', [id, idMessage], delivery, notFoundResponse),
    },
    '/api/webhook/v1/rotate.json': {
      post: method('Replace the secret of a webhook.', [id, hours], rotated, notFoundResponse),
    },
  };
}

export function describeWebhookApi(): OpenApiPart {
  return {
    area: 'export',
    paths: describeWebhooks(),
    examples: webhookExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
