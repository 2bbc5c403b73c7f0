/** Examples of webhooks and schedules in the API reference. */
import { done, idRawExport, order, type Examples } from './openapi-examples.ts';

const url = 'https://hooks.example.com/tributary';
const webhook = { idWebhook: 'wh_f2013a4e83da6ef3', url, timestampCreated: '1767225600' };
const { idWebhook } = webhook;

const delivery = {
  idMessage: `${idWebhook}.ex_5b1f7c3e9d2a4860`,
  type: 'export.finished',
  subject: '17',
  isDelivered: false,
  responseCode: 503,
  error: 'the receiver returned HTTP 503',
  attempts: 3,
  timestampLastAttempt: '1767229200',
};
const testDelivery = {
  idMessage: `${idWebhook}.te_0c1d2e3f4a5b6c7d`,
  type: 'webhook.test',
  isDelivered: true,
  responseCode: 200,
  attempts: 1,
  timestampLastAttempt: '1767229300',
};

export const webhookExamples: Examples = {
  '/api/webhook/v1/create.json': {
    given: { url },
    answer: done({ ...webhook, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' }),
  },
  '/api/webhook/v1/list.json': {
    answer: done({
      webhooks: [{ ...webhook, timestampLastAttempt: '1767229200', lastError: 'the receiver returned HTTP 503' }],
    }),
  },
  '/api/webhook/v1/deliveries.json': { given: { idWebhook }, answer: done({ deliveries: [delivery] }) },
  '/api/webhook/v1/test.json': { given: { idWebhook }, answer: done(testDelivery) },
  '/api/webhook/v1/resend.json': { given: { idWebhook, idMessage: delivery.idMessage }, answer: done(delivery) },
  '/api/webhook/v1/rotate.json': {
    given: { idWebhook, hours: 24 },
    answer: done({
      ...webhook,
      timestampFormerSecretEnds: '1767312000',
      secret: 'whsec_x3KQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    }),
  },
  '/api/webhook/v1/delete.json': { given: { idWebhook }, answer: done({ idWebhook }) },
};

const destination = {
  idDestination: 'de_0f1e2d3c4b5a6978',
  name: 'Warehouse',
  place: 's3://warehouse/raw/',
  kind: 's3',
  endpoint: 'https://s3.eu-central-1.amazonaws.com',
  region: 'eu-central-1',
  bucket: 'warehouse',
  prefix: 'raw/',
  pathStyle: true,
  accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
  timestampCreated: '1767225600',
};
const { idDestination } = destination;

export const destinationExamples: Examples = {
  '/api/destination/v1/create.json': {
    given: {
      name: 'Warehouse',
      kind: 's3',
      endpoint: destination.endpoint,
      region: destination.region,
      bucket: 'warehouse',
      prefix: 'raw',
      accessKeyId: destination.accessKeyId,
      secret: 'wJalrXUtnFEMI',
    },
    answer: done(destination),
  },
  '/api/destination/v1/list.json': { answer: done({ destinations: [destination] }) },
  '/api/destination/v1/secret.json': { given: { idDestination, secret: 'wJalrXUtnFEMI' }, answer: done(destination) },
  '/api/destination/v1/delete.json': { given: { idDestination }, answer: done({ idDestination }) },
};

const idSchedule = 'sc_8b7f9a0b78ee61cb';
const schedule = {
  idSchedule,
  name: 'Daily events',
  summary: 'Custom events; columns tsEvent, eventName and params.name; csv',
  idUser: '1',
  every: 'day',
  at: '04:00',
  timezone: 'UTC',
  catchUp: '31',
  arguments: { event: [order.event], name: ['Daily events'], selectors: order.selectors },
  status: 'Active',
  timestampCreated: '1767225600',
  timestampNextSlot: '1767240000',
};
const ofSchedule = { given: { idSchedule }, answer: done(schedule) };

export const scheduleExamples: Examples = {
  '/api/schedule/v1/create.json': {
    given: { every: 'day', at: '04:00', event: order.event, selectors: order.selectors, timezone: 'UTC' },
    answer: done(schedule),
  },
  '/api/schedule/v1/list.json': { answer: done({ schedules: [schedule] }) },
  '/api/schedule/v1/get.json': ofSchedule,
  '/api/schedule/v1/runs.json': {
    given: { idSchedule },
    answer: done({
      runs: [
        {
          idRawExport,
          slot: '2026-01-02',
          isOnDemand: false,
          status: 'Success!',
          timestampCreated: '1767326400',
          timestampFinished: '1767326404',
          rows: 131_502,
          bytes: 7_912_344,
        },
      ],
    }),
  },
  '/api/schedule/v1/run.json': ofSchedule,
  '/api/schedule/v1/pause.json': { ...ofSchedule, answer: done({ ...schedule, status: 'Paused' }) },
  '/api/schedule/v1/resume.json': ofSchedule,
  '/api/schedule/v1/delete.json': { given: { idSchedule }, answer: done({ idSchedule }) },
};
