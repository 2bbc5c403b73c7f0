import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { moment, notice } from './app-openapi.ts';
import { webhookExamples } from './openapi-examples.ts';
import { count, method, notFound, object, slot, text, type Schema } from './openapi.ts';

const webhook = { idWebhook: text, url: { type: 'string', format: 'uri' }, timestampCreated: text };

const describeMessage = (types: readonly string[], data: Schema): Schema =>
  object({ id: text, type: { type: 'string', enum: types }, timestamp: moment, data });

const ofExport = describeMessage(
  ['export.finished', 'export.failed'],
  object(
    {
      idRawExport: text,
      idReportFile: text,
      event: text,
      status: text,
      ...slot,
      errorMessage: text,
      files: count,
      rows: count,
      bytes: count,
      version: text,
      nextSinceVersion: text,
    },
    ['idRawExport', 'idReportFile', 'event', 'status'],
  ),
);

const ofNotice = describeMessage(['catalogue.notice'], notice);

/** What the service sends to an address. */
const message = {
  '{$request.query.url}': {
    post: {
      summary: 'An export of the account has ended, or the catalogue has noticed something in one of its apps.',
      parameters: ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => ({
        name,
        in: 'header',
        required: true,
        schema: text,
      })),
      requestBody: { required: true, content: { 'application/json': { schema: { oneOf: [ofExport, ofNotice] } } } },
      responses: {
        '2XX': { description: 'Taken; after anything else but 410 the message comes again.' },
        410: { description: 'The message does not come again.' },
      },
    },
  },
};

const argument = (name: string): Schema => ({ name, in: 'query', required: true, schema: text });

/** The methods of webhooks in the API reference, and the messages. */
export function describeWebhookApi(): OpenApiPart {
  const damaged = {
    type: 'array',
    items: text,
    description: 'Ids of those whose records are damaged: they are told nothing.',
  };
  const last = {
    timestampLastTry: {
      ...text,
      description: 'Unix seconds: when the newest message was sent, since the service started.',
    },
    lastProblem: { ...text, description: 'Why it was not taken; absent: it was.' },
  };
  const items = object({ ...webhook, ...last }, Object.keys(webhook));
  const list = object({ webhooks: { type: 'array', items }, damaged }, ['webhooks']);
  const secret = { ...text, description: 'The messages are signed with it; told once.' };
  const summary = 'Have the ended exports of the account, and notices of the catalogue, told to an address.';
  const create = method(summary, [argument('url')], object({ ...webhook, secret }), {});
  return {
    area: 'export',
    paths: {
      '/api/webhook/v1/create.json': { post: { ...create, callbacks: { message } } },
      '/api/webhook/v1/list.json': { get: method('The webhooks of the account.', [], list, {}) },
      '/api/webhook/v1/delete.json': {
        post: method('Remove a webhook.', [argument('idWebhook')], object({ idWebhook: text }), notFound),
      },
    },
    examples: webhookExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
