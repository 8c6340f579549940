# A STAND-IN for temporalio/ui: the release's source, built by Go, its own configuration and start script.
FROM holdfast-stand-in/alpine
WORKDIR /home/ui-server
COPY ui-server start-ui-server.sh ./
COPY docker.yaml config/
USER temporal
ENTRYPOINT ["./start-ui-server.sh"]
