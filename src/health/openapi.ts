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
      '/healthz': describeRoute('Whether the process that serves this area answers.', {
        200: json('It does.', object({ alive: flag })),
      }),
      '/readyz': describeRoute(
        "Whether the whole service works. What is wrong is shown on the operator's own address.",
        {
          200: json('It does.', reference('Readiness')),
          503: json('Something is wrong.', reference('Readiness')),
        },
      ),
      '/openapi.json': describeRoute('This reference, as a document.', {
        200: json('OpenAPI 3.1.', { type: 'object' }),
      }),
      '/docs': describeRoute('This reference, as a page for people.', {
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
