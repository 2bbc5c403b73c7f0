import { flag, json, object, reference, text } from '../runtime/http/openapi.ts';
import type { OpenApiObject, OpenApiPart } from '../runtime/http/openapi.ts';

function describeRoute(summary: string, responses: OpenApiObject): OpenApiObject {
  return { get: { summary, tags: ['Health'], security: [], responses } };
}

/** Returns the part of the API reference on health and on the reference itself. None needs authorization. */
export function describeHealth(): OpenApiPart {
  return {
    area: 'export',
    paths: {
      '/healthz': describeRoute('Get liveness of the process.', {
        200: json('The process is alive.', object({ alive: flag })),
      }),
      '/readyz': describeRoute("Get readiness of the service. Only the operator's address shows the problems.", {
        200: json('The service is ready.', reference('Readiness')),
        503: json('The service is not ready.', reference('Readiness')),
      }),
      '/openapi.json': describeRoute('Get this reference as an OpenAPI document.', {
        200: json('OpenAPI 3.1.', { type: 'object' }),
      }),
      '/docs': describeRoute('Get this reference as an HTML page.', {
        200: { description: 'HTML.', content: { 'text/html': { schema: text } } },
      }),
    },
    examples: {
      '/healthz': { answer: { alive: true } },
      '/readyz': { answer: { ready: true } },
      '/openapi.json': { answer: { openapi: '3.1.0' } },
      '/docs': { answer: '<!doctype html>' },
    },
    components: {
      schemas: { Readiness: object({ ready: flag }) },
      securitySchemes: {},
    },
  };
}
