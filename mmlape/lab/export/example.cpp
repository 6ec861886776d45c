// Run the graph beside this file on a PPM image of at most its size, which is in model.json.
//   c++ -std=c++17 example.cpp -o example -lonnxruntime      # with -I and -L where onnxruntime is
//   convert IMAGE -resize 512x512 IMAGE.ppm                  # by ImageMagick
//   ./example IMAGE.ppm

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

int main(int count, char **given) {
    std::vector<std::string> names;
    std::ifstream lines("labels.txt"), file(count > 1 ? given[1] : "", std::ios::binary);
    for (std::string line; std::getline(lines, line);) names.push_back(line);

    Ort::Env environment;
    Ort::Session session(environment, "model.onnx", Ort::SessionOptions());
    Ort::AllocatorWithDefaultOptions memory;
    const auto about = session.GetModelMetadata();
    const auto note = [&](const char *key) {
        const auto value = about.LookupCustomMetadataMapAllocated(key, memory);
        return std::string(value ? value.get() : "");
    };
    const auto input = session.GetInputTypeInfo(0);
    auto shape = input.GetTensorTypeAndShapeInfo().GetShape();  // images, channels, height, width
    shape[0] = std::max<int64_t>(shape[0], 1);
    const size_t channels = shape[1], rows = shape[2], columns = shape[3];

    std::string kind;
    size_t width = 0, height = 0, largest = 0;
    file >> kind >> width >> height >> largest;
    const bool in_colour = kind == "P6" && channels == 3 && largest == 255;
    if (!in_colour || !width || !height || width > columns || height > rows) {
        std::cerr << "give a PPM image in colour of at most " << columns << " x " << rows
                  << " pixels\n";
        return 1;
    }
    file.get();
    std::vector<char> pixels(width * height * channels);
    file.read(pixels.data(), pixels.size());

    float mean[3] = {0, 0, 0};  // pads at the right and below: the graph makes 0 of it
    std::sscanf(note("mean").c_str(), "[%f, %f, %f]", &mean[0], &mean[1], &mean[2]);
    std::vector<float> images;  // 0 to 255
    for (int64_t image = 0; image < shape[0]; ++image)
        for (size_t channel = 0; channel < channels; ++channel)
            for (size_t y = 0; y < rows; ++y)
                for (size_t x = 0; x < columns; ++x) {
                    const bool inside = y < height && x < width;
                    const size_t place = (y * width + x) * channels + channel;
                    const float padding = mean[channel];
                    images.push_back(inside ? static_cast<unsigned char>(pixels[place]) : padding);
                }

    std::vector<std::string> outputs;
    std::vector<const char *> wanted;
    for (size_t i = 0; i < session.GetOutputCount(); ++i)
        outputs.push_back(session.GetOutputNameAllocated(i, memory).get());
    for (const auto &name : outputs) wanted.push_back(name.c_str());
    const auto cpu = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const auto image = Ort::Value::CreateTensor<float>(cpu, images.data(), images.size(),
                                                       shape.data(), shape.size());
    const char *inputs[] = {"image"};
    const auto found =
        session.Run(Ort::RunOptions(), inputs, &image, 1, wanted.data(), wanted.size());
    const auto sizes = found[0].GetTensorTypeAndShapeInfo().GetShape();

    if (note("task") == "detection") {
        const float *boxes = found[0].GetTensorData<float>();
        const float *scores = found[1].GetTensorData<float>();
        const int64_t *labels = found[2].GetTensorData<int64_t>();
        for (int64_t i = 0; i < sizes[1]; ++i) {
            const float *box = boxes + 4 * i;  // left, top, right, bottom, in pixels
            if (scores[i] > 0.3)
                std::printf("%s %.3f %.1f %.1f %.1f %.1f\n", names[labels[i]].c_str(), scores[i],
                            box[0], box[1], box[2], box[3]);
        }
    } else if (note("task") == "segmentation") {
        std::map<int64_t, size_t> counted;
        for (size_t y = 0; y < height; ++y)
            for (size_t x = 0; x < width; ++x) {
                const size_t place = y * columns + x;
                int64_t label = 0;
                if (outputs[0] == "labels") {
                    label = found[0].GetTensorData<int64_t>()[place];
                } else {
                    const size_t map = rows * columns;
                    const float *logits = found[0].GetTensorData<float>() + place;
                    if (sizes[1] == 1) label = *logits > 0;
                    for (int64_t other = 1; other < sizes[1]; ++other)
                        if (logits[other * map] > logits[label * map]) label = other;
                }
                ++counted[label];
            }
        for (const auto &[label, number] : counted) {
            const std::string name = names.size() > 1 ? names[label] : std::to_string(label);
            const double share = static_cast<double>(number) / (width * height);
            std::printf("%s %.3f\n", name.c_str(), share);
        }
    } else {
        const float *scores = found[0].GetTensorData<float>();
        std::vector<int64_t> order(sizes[1]);
        std::iota(order.begin(), order.end(), 0);
        const auto higher = [&](auto a, auto b) { return scores[a] > scores[b]; };
        std::stable_sort(order.begin(), order.end(), higher);
        for (size_t i = 0; i < std::min<size_t>(5, order.size()); ++i)
            std::printf("%s %.3f\n", names[order[i]].c_str(), scores[order[i]]);
    }
}
